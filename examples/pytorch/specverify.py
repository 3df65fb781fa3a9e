"""specverify.py: specverify.cuh and specverify_ref.h for Python, through ctypes.

    import specverify
    tokens = specverify.rejection_sample(...)     # arguments and result as vLLM's
    specverify.verify_chain(...)                  # as FlashInfer's chain_speculative_sampling
    specverify.generate(target, assistant, ids)   # a loop for Hugging Face models
    specverify.verify(...)                        # what the three are made of

Tensors on a CUDA device go to libspecverify.so, on the stream that is current; tensors and NumPy
arrays in host memory to libspecverify_ref.so. `make` beside this file builds both into build/; a
library from elsewhere is given to use(). torch is imported by generate() alone.

Everything else of the kit: a descriptor below, filled in with addresses, and Library.call. Fields
are those of the header, which documents them; test.py asks a compiler whether they lie where it
puts them.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, NamedTuple, Sequence

VERSION = 700  # SPECVERIFY_VERSION of the header that has these structures

# ---- constants of the header

I32, I64 = 0, 1
LOGITS_F32, LOGITS_F16, LOGITS_BF16, PROBS_F32 = range(4)
(RULE_TOKEN, RULE_BLOCK, RULE_COUPLED, RULE_GREEDY, RULE_SCORE, RULE_TYPICAL, RULE_TYPICAL_DRAW,
 RULE_THRESHOLD, RULE_RELAXED, RULE_BOUNDED) = range(10)
STREAM_TARGET, STREAM_DRAFT, STREAM_COUPLED = range(3)
SAMPLE_CDF, SAMPLE_GUMBEL = range(2)
(TREE_GREEDY, TREE_COUPLED, TREE_ONE_COIN, TREE_RECURSIVE, TREE_RECURSIVE_DISTINCT, TREE_TRAVERSAL,
 TREE_TRAVERSAL_DISTINCT) = range(7)
TOP_K_TOP_P_MIN_P, MIN_P_TOP_K_TOP_P, TOP_P_OF_ALL = range(3)
CHAINED_AFTER, CHAINED_BEFORE = 1, 2
MAX_EOS, MAX_TOP, MAX_CARRY, MAX_CACHES = 4, 32, 8, 2
(ROW_BAD_LENGTH, ROW_BAD_DRAFT, ROW_BAD_TARGET, ROW_NO_SPACE, ROW_BAD_TEMPERATURE, ROW_NAN,
 ROW_EXTREME, ROW_EMPTY, ROW_ZERO_RESIDUAL, ROW_BAD_PAGE, ROW_SHARED_PAGE, ROW_BAD_SUM,
 ROW_BAD_UNIFORM, ROW_BAD_TICKET, ROW_BAD_SLOT, ROW_BAD_FILTER,
 ROW_BAD_RECORD, ROW_BAD_TREE, ROW_BAD_LOSSY) = (1 << bit for bit in range(19))

RULES = {"token": RULE_TOKEN, "block": RULE_BLOCK, "coupled": RULE_COUPLED,
         "greedy": RULE_GREEDY, "typical": RULE_TYPICAL, "typical_draw": RULE_TYPICAL_DRAW,
         "threshold": RULE_THRESHOLD, "relaxed": RULE_RELAXED, "bounded": RULE_BOUNDED}
SCORES = {"float32": LOGITS_F32, "float16": LOGITS_F16, "bfloat16": LOGITS_BF16}
TOKENS = {"int32": I32, "int64": I64}

# ---- structures of the header: specv_rows is Rows, specv_verify_greedy_desc VerifyGreedyDesc

_TYPES: dict[str, Any] = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32, "u32": ctypes.c_uint32,
                          "i64": ctypes.c_int64, "f64": ctypes.c_double}


def _struct(name: str, fields: str) -> Any:
    """A structure of "type field field[count]; type field"; later ones may name it as a type."""
    members = []
    for line in fields.split(";"):
        kind, *names = line.split()
        for field in names:
            field, _, count = field.rstrip("]").partition("[")
            members.append((field, _TYPES[kind] * int(count) if count else _TYPES[kind]))
    _TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": members})
    return _TYPES[name]


Rows = _struct("Rows", """ptr num_active draft_len row_start row_end slot; i64 num_draft_tokens;
    i32 batch max_draft slot_dtype num_slots""")
Scores = _struct("Scores", "ptr data; i64 pos_stride_elems seq_stride_elems; i32 dtype; "
                           "u32 reserved")
Filters = _struct("Filters", """ptr mask mask_row top_k top_p min_p; i64 mask_stride_words;
    i32 num_mask_rows order""")
Emitted = _struct("Emitted", "ptr logprob rank top_id top_logprob num_top; i32 max_top raw")
Lossy = _struct("Lossy", "ptr epsilon alpha threshold_single threshold_acc top_n delta ratio")
VerifyGreedyDesc = _struct("VerifyGreedyDesc", f"""u32 canary0; i32 token_dtype; Rows rows;
    ptr draft_tokens target_tokens accepted_len mismatch next_token out_tokens num_emitted finished
    row_status; i64 draft_stride_elems target_stride_elems out_stride_elems vocab
    eos_token[{MAX_EOS}]; i32 num_eos keep_status chained; u32 canary1""")
VerifySampleDesc = _struct("VerifySampleDesc", """VerifyGreedyDesc verify; Scores target draft;
    ptr bonus_token temperature draft_temperature seed position accept_uniform sample_uniform
    logprob lse max_prob target_logprob scratch; i64 scratch_bytes; i32 rule num_sms step_row
    stream; Emitted emitted; Filters filters draft_filters; Lossy lossy; u32 reserved canary1""")
VerifyShardDesc = _struct("VerifyShardDesc", """u32 canary0; i32 step; VerifySampleDesc sample;
    ptr record gathered; i64 record_stride_bytes; ptr epoch; i32 first_id num_ids num_shards
    max_top_k all_top_k; u32 canary1""")
SampleDesc = _struct("SampleDesc", """u32 canary0; i32 token_dtype; ptr num_active slot;
    Scores scores; ptr temperature seed position; Filters filters; ptr uniform token logprob;
    Emitted emitted; ptr lse max_prob row_status scratch; i64 scratch_bytes vocab
    token_stride_elems; i32 batch slot_dtype num_slots method num_sms step_row stream keep_status
    chained; u32 canary1""")
KvPack = _struct("KvPack", """ptr src_planes dst_planes src dst offsets; i64 row_bytes
    src_pos_stride_bytes src_seq_stride_bytes dst_row_stride_bytes capacity_rows;
    i32 num_planes num_sms""")
PackKvDesc = _struct("PackKvDesc", """u32 canary0; i32 keep_status; Rows rows;
    ptr accepted_len row_status; KvPack kv; i32 chained; u32 canary1""")
VerifyPackKvDesc = _struct("VerifyPackKvDesc", """VerifyGreedyDesc verify; KvPack kv;
    u32 reserved canary1""")
KvCache = _struct("KvCache", """ptr planes plane block_table; i64 head_bytes head_stride_bytes
    pos_stride_bytes seq_stride_bytes page_stride_bytes table_stride_elems; i32 num_planes
    num_heads max_positions page_size num_pages; u32 reserved""")
KvRows = _struct("KvRows", """ptr planes plane; i64 head_stride_bytes pos_stride_bytes
    seq_stride_bytes""")
AppendKvDesc = _struct("AppendKvDesc", """u32 canary0; i32 keep_status; Rows rows;
    ptr accepted_len cache_len draft_cache_len draft_lacks slot_mapping position_ids page_refs
    row_status ticket; KvRows src; KvCache kv; i32 num_pending num_sms chained; u32 canary1""")
PagePool = _struct("PagePool", "ptr page_refs free_pages num_free")
PageResizeDesc = _struct("PageResizeDesc", """u32 canary0; i32 keep_status; ptr num_active slot;
    PagePool pool; ptr num_row_pages cache_len row_reserve finished copy_src_page copy_dst_page
    row_status; KvCache kv; i32 batch slot_dtype num_slots reserve num_sms chained;
    u32 reserved canary1""")
PageForkDesc = _struct("PageForkDesc", """u32 canary0; i32 keep_status; ptr page_refs block_table
    num_row_pages cache_len num_active_forks src_slot dst_slot fork_status; i64 table_stride_elems;
    i32 num_slots num_forks page_size num_pages max_row_pages chained; u32 reserved canary1""")
Trees = _struct("Trees", """ptr num_active num_nodes parent token slot; i64 parent_stride_elems
    token_stride_elems; i32 batch max_nodes token_dtype slot_dtype num_slots; u32 reserved""")
VerifyTreeDesc = _struct("VerifyTreeDesc", f"""u32 canary0; i32 rule; Trees trees; ptr target_tokens;
    Scores target draft; ptr temperature draft_temperature seed position accepted_len mismatch
    next_token out_tokens num_emitted finished row_status path accept_index predicts logprob
    scratch; i64 scratch_bytes target_stride_elems out_stride_elems vocab eos_token[{MAX_EOS}];
    i32 num_eos max_depth keep_status chained step_row stream; Emitted emitted;
    Filters filters draft_filters; i32 num_sms; u32 canary1""")
CommitPathDesc = _struct("CommitPathDesc", """u32 canary0; i32 keep_status; ptr num_active slot
    accepted_len path num_nodes cache_len new_cache_len src_block_table page_refs row_status ticket;
    KvCache kv; i64 path_stride_elems src_table_stride_elems; i32 batch max_nodes max_depth
    slot_dtype num_slots num_sms chained; u32 canary1""")
TreeLayoutDesc = _struct("TreeLayoutDesc", """u32 canary0; i32 form; ptr given_parent first_child
    next_sibling paths given_mask num_active num_nodes slot position parent depth position_ids mask
    row_status; i64 given_stride_elems mask_stride_words; i32 one_tree batch max_nodes num_paths
    path_len link_dtype index_dtype slot_dtype num_slots keep_status chained; u32 canary1""")
Columns = _struct("Columns", """ptr tokens mask position_ids width; i64 stride_elems pad_token;
    i32 index_dtype max_columns""")
RealignDesc = _struct("RealignDesc", """u32 canary0; i32 token_dtype; ptr num_active slot
    out_tokens num_emitted pad_len shifts row_status ticket; Columns columns; KvCache kv;
    i64 out_stride_elems; i32 batch max_draft slot_dtype num_slots keep_status chained num_sms;
    u32 canary1""")
ShiftKvDesc = _struct("ShiftKvDesc", """u32 canary0; i32 keep_status; ptr num_active slot shifts
    end row_status; KvCache kv; i32 batch slot_dtype num_slots chained num_sms; u32 canary1""")
GapCommitDesc = _struct("GapCommitDesc", """u32 canary0; i32 token_dtype; ptr num_active slot
    accepted_len out_tokens num_emitted text_len max_draft_lacks row_status ticket;
    Columns columns; i64 out_stride_elems; i32 batch max_draft slot_dtype num_slots keep_status
    chained; u32 reserved canary1""")
Carry = _struct("Carry", "ptr data; i64 elem_bytes")
CompactDesc = _struct("CompactDesc", f"""u32 canary0; i32 batch; ptr num_active slot finished
    cache_len draft_cache_len active new_num_active new_slot start_position draft_lacks_first
    draft_lacks_start row_status; Carry carry[{MAX_CARRY}]; i32 num_carry keep_status slot_dtype
    num_slots chained; u32 canary1""")
GroupDesc = _struct("GroupDesc", """u32 canary0; i32 batch; ptr num_active slot skip length score
    order group_start group_count pick_rows is_group row_status ticket; i32 num_pick slot_dtype
    num_slots keep_status chained; u32 canary1""")
DraftBudgetDesc = _struct("DraftBudgetDesc", """u32 canary0; i32 keep_status; Rows rows;
    ptr confidence budget survival new_draft_len new_row_start row_status;
    i64 confidence_stride_elems; i32 max_budget chained; u32 reserved canary1""")
ParticleWeightsDesc = _struct("ParticleWeightsDesc", f"""u32 canary0; i32 token_dtype;
    ptr num_active slot draft_tokens next_token target_logprob draft_logprob alpha bonus_lse lse
    finished log_weight interval_weight num_emitted row_status; i64 draft_stride_elems
    target_logprob_stride_elems draft_logprob_seq_stride_elems draft_logprob_pos_stride_elems
    eos_token[{MAX_EOS}]; i32 num_eos batch max_draft keep_status slot_dtype num_slots chained;
    u32 canary1""")
ResamplePlanDesc = _struct("ResamplePlanDesc", """u32 canary0; i32 scheme; ptr num_active_groups
    group_slot interval_weight log_weight log_z seed position uniform jobs num_jobs num_copies
    drawn_row ess group_status; f64 threshold; i32 num_groups num_particles keep_status
    group_slot_dtype num_group_slots chained; u32 reserved canary1""")
ParticleCache = _struct("ParticleCache", """PagePool pool; ptr block_table num_row_pages cache_len;
    i64 table_stride_elems; i32 page_size num_pages max_row_pages; u32 reserved""")
ReshuffleDesc = _struct("ReshuffleDesc", f"""u32 canary0; i32 token_dtype; ptr num_active_groups
    jobs num_jobs slot; ParticleCache cache[{MAX_CACHES}]; Carry carry[{MAX_CARRY}]; ptr text
    text_len job_status scratch; i64 scratch_bytes text_stride_elems; i32 num_groups max_jobs batch
    num_caches num_carry keep_status num_sms slot_dtype num_slots chained; u32 reserved canary1""")
AcceptStatsDesc = _struct("AcceptStatsDesc", """u32 canary0; i32 accumulate; Rows rows;
    ptr accepted_len mismatch num_emitted draft_tokens histogram totals; i64 draft_stride_elems;
    i32 token_dtype chained; u32 reserved canary1""")

# specv_verify_greedy, of the reference specv_ref_verify_greedy
OPERATIONS = {
    "verify_greedy": VerifyGreedyDesc, "verify_sample": VerifySampleDesc,
    "verify_shard": VerifyShardDesc, "sample": SampleDesc, "pack_kv": PackKvDesc,
    "verify_pack_kv": VerifyPackKvDesc, "append_kv": AppendKvDesc,
    "page_resize": PageResizeDesc, "page_fork": PageForkDesc,
    "verify_tree": VerifyTreeDesc, "commit_path": CommitPathDesc,
    "tree_layout": TreeLayoutDesc, "realign": RealignDesc,
    "shift_kv": ShiftKvDesc, "gap_commit": GapCommitDesc, "compact": CompactDesc,
    "group": GroupDesc, "draft_budget": DraftBudgetDesc, "particle_weights": ParticleWeightsDesc,
    "resample_plan": ResamplePlanDesc, "reshuffle": ReshuffleDesc, "accept_stats": AcceptStatsDesc}

# ---- libraries


class Error(RuntimeError):
    """A launcher's answer: a descriptor that it refuses, or a CUDA error."""

    def __init__(self, status: int, text: str):
        super().__init__(f"{text} ({status})")
        self.status = status


class Library:
    """The kit (device memory) or the reference (host memory), built with SPECVERIFY_EXPORT."""

    def __init__(self, path: str):
        self.lib = ctypes.CDLL(path)
        self.on_host = hasattr(self.lib, "specv_ref_version")
        version = self.lib.specv_ref_version() if self.on_host else self.lib.specv_version()
        if version // 100 != VERSION // 100:
            raise ImportError(f"{path} is version {version}, specverify.py of {VERSION}")
        self.lib.specv_status_string.restype = ctypes.c_char_p
        for name in ("verify_sample_scratch", "sample_scratch", "reshuffle_scratch",
                     "shard_scratch", "shard_record"):
            size = getattr(self.lib, f"specv_{name}_bytes", None)
            if size:
                size.restype = ctypes.c_int64
        self._scratch: dict[Any, Any] = {}

    def status_string(self, status: int) -> str:
        return self.lib.specv_status_string(status).decode()

    def check(self, status: int) -> None:
        if status:
            raise Error(status, self.status_string(status))

    def call(self, name: str, desc: ctypes.Structure, stream: int | None = None) -> None:
        """Runs an operation, or puts it on a stream; `desc` is of OPERATIONS[name]."""
        if not isinstance(desc, OPERATIONS[name]):
            raise TypeError(f"{name} takes {OPERATIONS[name].__name__}")
        if self.on_host:
            self.check(getattr(self.lib, "specv_ref_" + name)(ctypes.byref(desc)))
        else:
            stream_pointer = ctypes.c_void_p(stream)
            self.check(getattr(self.lib, "specv_" + name)(ctypes.byref(desc), stream_pointer))

    def scratch(self, like: Any, batch: int, max_draft: int, vocab: int) -> tuple[int, int]:
        """Address and size of scratch memory for verify_sample and sample. One block for each
        stream, kept: its tickets are zeroed once, and what runs on a stream runs in order."""
        size = self.lib.specv_verify_sample_scratch_bytes
        needed = size(*map(ctypes.c_int64, (batch, max_draft, vocab)))
        if needed < 0:
            self.check(needed)
        key = (str(getattr(like, "device", "cpu")), _stream(like))
        if key not in self._scratch or self._scratch[key].shape[0] * 8 < needed:
            self._scratch[key] = _full(like, ((needed + 7) // 8,), "int64", 0)
        return _address(self._scratch[key]), needed


_libraries: dict[bool, Library] = {}  # by on_host


def use(path: str) -> Library:
    """Loads a library; from now on it is the one for its kind of memory."""
    library = Library(path)
    _libraries[library.on_host] = library
    return library


def library_for(array: Any) -> Library:
    """The library for memory like this array's."""
    on_host = _is_on_host(array)
    if on_host not in _libraries:
        name = "libspecverify_ref.so" if on_host else "libspecverify.so"
        use(os.path.join(os.path.dirname(os.path.abspath(__file__)), "build", name))
    return _libraries[on_host]


# ---- arrays: torch tensors, or what has NumPy's interface


def _is_torch(array: Any) -> bool:
    return hasattr(array, "data_ptr")


def _is_on_host(array: Any) -> bool:
    return not _is_torch(array) or array.device.type == "cpu"


def _stream(array: Any) -> int | None:
    if _is_on_host(array):
        return None
    return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream


def _dtype(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def _strides(array: Any) -> tuple[int, ...]:
    if _is_torch(array):
        return tuple(array.stride())
    return tuple(s // array.itemsize for s in array.strides)


def _address(array: Any) -> int:
    return array.data_ptr() if _is_torch(array) else array.ctypes.data


def _full(like: Any, shape: Sequence[int], dtype: str, value: Any) -> Any:
    if _is_torch(like):
        torch = sys.modules["torch"]
        return torch.full(tuple(shape), value, dtype=getattr(torch, dtype), device=like.device)
    import numpy
    return numpy.full(shape, value, dtype)


def _array(like: Any, values: Any, shape: Sequence[int], dtype: str) -> Any:
    """`values`, a number or as many as `shape` has, as a packed array beside `like`; null stays."""
    if values is None:
        return None
    if isinstance(values, (int, float)):
        return _full(like, shape, dtype, values)
    if _is_torch(like):
        torch = sys.modules["torch"]
        values = torch.as_tensor(values, dtype=getattr(torch, dtype), device=like.device)
        values = values.contiguous()
    else:
        import numpy
        values = numpy.ascontiguousarray(values, dtype)
    if tuple(values.shape) != tuple(shape):
        values = values.reshape(tuple(shape))
    return values


def _pointer(array: Any) -> int | None:
    return None if array is None else _address(array)


def _scores(array: Any, is_probs: bool) -> Any:
    """Scores of [..., positions, vocab], as they lie: ids must be neighbours."""
    if is_probs and _dtype(array) != "float32":
        raise TypeError("probabilities must be float32")
    if _dtype(array) not in SCORES:
        raise TypeError(f"scores of type {_dtype(array)}: float32, float16 or bfloat16 are needed")
    strides, shape = _strides(array), array.shape
    if shape[-1] > 1 and strides[-1] != 1:
        raise ValueError("the ids of a position must be neighbours in memory")
    scores = Scores(data=_address(array), dtype=PROBS_F32 if is_probs else SCORES[_dtype(array)])
    if shape[-2] > 1:
        scores.pos_stride_elems = strides[-2]
    if len(shape) == 3 and shape[0] > 1:
        scores.seq_stride_elems = strides[0]
    return scores


def _seeds(like: Any, seed: Any, batch: int) -> Any:
    """A seed for each request; of one number that, the next one, and so on."""
    if isinstance(seed, int):
        seed = [(seed + b) % (1 << 63) for b in range(batch)]
    return _array(like, seed, (batch,), "int64")


# ---- verification


class Verdict(NamedTuple):
    """What a step says, by row."""
    tokens: Any      # [batch, max_draft + 1]: emitted tokens, then -1
    accepted: Any    # int32 [batch]: drafts among them
    emitted: Any     # int32 [batch]: how many tokens are emitted
    finished: Any    # uint8 [batch]: 1 = an emitted token is an EOS
    row_status: Any  # int32 [batch]: ROW_* bits of what is wrong with the row


def verify(draft_tokens: Any, target: Any, draft: Any = None, *, rule: str = "token",
           target_is_probs: bool = False, draft_is_probs: bool = False, row_end: Any = None,
           max_draft: int | None = None, bonus_token: Any = None, temperature: Any = None,
           draft_temperature: Any = None, seed: Any = None, position: Any = 0,
           accept_uniform: Any = None, sample_uniform: Any = None, top_k: Any = None,
           top_p: Any = None, min_p: Any = None, draft_filtered: bool = True,
           eos: Sequence[int] = (), epsilon: Any = None, alpha: Any = None,
           threshold_single: Any = None, threshold_acc: Any = None, top_n: Any = None,
           delta: Any = None, ratio: Any = None) -> Verdict:
    """specv_verify_sample. Dense: draft_tokens [batch, n], target [batch, n + 1, vocab], draft
    [batch, n, vocab] or None. With row_end, int32 [batch], running counts of drafts: draft_tokens
    [num_tokens], target [num_tokens + batch, vocab], draft [num_tokens, vocab], and max_draft.
    bonus_token [batch]: the token behind the last draft, which the target then has no row for.
    Numbers stand for arrays with that number in each row. draft_filtered: q was drawn with the
    same top_k, top_p, min_p as p. The last seven: what lossy rules are told, those that rule reads."""
    library = library_for(target)
    is_ragged = row_end is not None
    if is_ragged:
        batch, n = row_end.shape[0], max_draft
        if n is None:
            raise ValueError("row_end needs max_draft")
    else:
        batch, n = draft_tokens.shape
    vocab, extra = target.shape[-1], 0 if bonus_token is not None else 1
    lead = (lambda more: (draft_tokens.shape[0] + more * batch,)) if is_ragged else \
        (lambda more: (batch, n + more))
    for scores, shape in ((target, lead(extra)), (draft, lead(0))):
        if scores is not None and tuple(scores.shape) != (*shape, vocab):
            raise ValueError(f"scores are {tuple(scores.shape)}, not {(*shape, vocab)}")
    if _dtype(draft_tokens) not in TOKENS:
        raise TypeError("tokens must be int32 or int64")
    if len(eos) > MAX_EOS:
        raise ValueError(f"at most {MAX_EOS} eos tokens")
    token = _dtype(draft_tokens)

    out = Verdict(_full(target, (batch, n + 1), token, -1), _full(target, (batch,), "int32", 0),
                  _full(target, (batch,), "int32", 0), _full(target, (batch,), "uint8", 0),
                  _full(target, (batch,), "int32", 0))
    inputs = {  # held until the call is on its way
        "draft_tokens": _array(target, draft_tokens, draft_tokens.shape, token),
        "row_end": _array(target, row_end, (batch,), "int32"),
        "bonus_token": _array(target, bonus_token, (batch,), token),
        "temperature": _array(target, temperature, (batch,), "float32"),
        "draft_temperature": _array(target, draft_temperature, (batch,), "float32"),
        "seed": _seeds(target, seed, batch),
        "position": _array(target, position, (batch,), "int32"),
        "accept_uniform": _array(target, accept_uniform, draft_tokens.shape, "float32"),
        "sample_uniform": _array(target, sample_uniform, (batch,), "float32"),
        "top_k": _array(target, top_k, (batch,), "int32"),
        "top_p": _array(target, top_p, (batch,), "float32"),
        "min_p": _array(target, min_p, (batch,), "float32")}
    lossy = {"epsilon": epsilon, "alpha": alpha, "threshold_single": threshold_single,
             "threshold_acc": threshold_acc, "top_n": top_n, "delta": delta, "ratio": ratio}
    for name, value in lossy.items():
        inputs[name] = _array(target, value, (batch,), "int32" if name == "top_n" else "float32")

    d = VerifySampleDesc()
    v = d.verify
    v.token_dtype, v.vocab, v.num_eos = TOKENS[token], vocab, len(eos)
    v.eos_token[:len(eos)] = list(eos)
    v.rows.batch, v.rows.max_draft = batch, n
    if is_ragged:
        v.rows.row_end = _pointer(inputs["row_end"])
        v.rows.num_draft_tokens = draft_tokens.shape[0]
    v.draft_tokens = _pointer(inputs["draft_tokens"])
    v.out_tokens, v.accepted_len, v.num_emitted, v.finished, v.row_status = map(_address, out)
    d.target = _scores(target, target_is_probs)
    if draft is not None and rule in ("token", "block", "bounded"):
        d.draft = _scores(draft, draft_is_probs)
    for name in ("bonus_token", "temperature", "draft_temperature", "seed", "position",
                 "accept_uniform", "sample_uniform"):
        setattr(d, name, _pointer(inputs[name]))
    for filters in (d.filters, d.draft_filters)[:2 if draft_filtered and d.draft.data else 1]:
        for name in ("top_k", "top_p", "min_p"):
            setattr(filters, name, _pointer(inputs[name]))
    for name in lossy:
        setattr(d.lossy, name, _pointer(inputs[name]))
    d.rule = RULES[rule]
    d.scratch, d.scratch_bytes = library.scratch(target, batch, n, vocab)
    library.call("verify_sample", d, _stream(target))
    return out


def sample(scores: Any, *, token: Any = None, temperature: Any = None, seed: Any = None,
           position: Any = 0, step_row: int = 0, of_draft: bool = False, coupled: bool = False,
           top_k: Any = None, top_p: Any = None, min_p: Any = None) -> Any:
    """specv_sample: a token [batch] of scores [batch, vocab]; `token`: an int64 array to write to,
    as a column of drafts. of_draft: a draft model's, whose numbers are its own. coupled: by the
    noise that rule "coupled" has at position + step_row."""
    library = library_for(scores)
    batch, vocab = scores.shape
    if token is None:
        token = _full(scores, (batch,), "int64", -1)
    status = _full(scores, (batch,), "int32", 0)
    inputs = {"temperature": _array(scores, temperature, (batch,), "float32"),
              "seed": _seeds(scores, seed, batch),
              "position": _array(scores, position, (batch,), "int32"),
              "top_k": _array(scores, top_k, (batch,), "int32"),
              "top_p": _array(scores, top_p, (batch,), "float32"),
              "min_p": _array(scores, min_p, (batch,), "float32")}
    d = SampleDesc(token_dtype=TOKENS[_dtype(token)], batch=batch, vocab=vocab,
                   step_row=step_row, token=_address(token), row_status=_address(status),
                   token_stride_elems=_strides(token)[0] if batch > 1 else 0)
    d.scores = _scores(scores, False)
    d.scores.seq_stride_elems, d.scores.pos_stride_elems = d.scores.pos_stride_elems, 0
    d.temperature, d.seed, d.position = (_pointer(inputs[name])
                                         for name in ("temperature", "seed", "position"))
    for name in ("top_k", "top_p", "min_p"):
        setattr(d.filters, name, _pointer(inputs[name]))
    d.method = SAMPLE_GUMBEL if coupled else SAMPLE_CDF
    d.stream = STREAM_COUPLED if coupled else STREAM_DRAFT if of_draft else STREAM_TARGET
    d.scratch, d.scratch_bytes = library.scratch(scores, batch, 0, vocab)
    library.call("sample", d, _stream(scores))
    return token


def rejection_sample(draft_token_ids: Any, num_draft_tokens: Sequence[int], max_spec_len: int,
                     cu_num_draft_tokens: Any, draft_probs: Any, target_probs: Any,
                     bonus_token_ids: Any, *, target_is_logits: bool = False,
                     temperature: Any = None, seed: Any = None, position: Any = 0,
                     rule: str = "token", row_status: Any = None) -> Any:
    """vLLM's v1 rejection sampler: token ids [num_tokens], int32 or int64; running counts [batch],
    or None: made of num_draft_tokens; probabilities [num_tokens, vocab], of the draft or None;
    bonus [batch] or [batch, 1], drawn by the caller. Returns [batch, max_spec_len + 1], -1 behind
    the last token. temperature 0: a greedy request, beside others. seed and position instead of
    generators: a number each, or [batch]. row_status: int32 [batch] to be filled in."""
    if cu_num_draft_tokens is None:
        counts = [sum(num_draft_tokens[:b + 1]) for b in range(len(num_draft_tokens))]
        cu_num_draft_tokens = _array(target_probs, counts, (len(counts),), "int32")
    verdict = verify(draft_token_ids, target_probs, draft_probs, rule=rule,
                     target_is_probs=not target_is_logits, draft_is_probs=True,
                     row_end=cu_num_draft_tokens, max_draft=max_spec_len,
                     bonus_token=bonus_token_ids, temperature=temperature,
                     seed=0 if seed is None else seed, position=position)
    if row_status is not None:
        row_status[:] = verdict.row_status
    return verdict.tokens


def verify_chain(draft_probs: Any, draft_token_ids: Any, target_probs: Any,
                 maybe_output_accepted_token_num: Any = None,
                 maybe_output_emitted_draft_token_num: Any = None, *, uniform: Any = None,
                 generator: Any = None) -> tuple[Any, Any, Any]:
    """FlashInfer's chain_speculative_sampling: draft_probs [batch, n, vocab], draft_token_ids
    [batch, n], target_probs [batch, n + 1, vocab]. Returns output_token_ids [batch, n + 1], -1
    behind the last; how many drafts pass their test, each looked at alone; how many are emitted.
    The last two are added to what is given for them. uniform: float32 [batch, n + 1] in [0, 1), a
    number for each test and one for the draw; None: drawn with `generator`."""
    batch, n = draft_token_ids.shape
    if _is_torch(target_probs):
        torch = sys.modules["torch"]
        gather = torch.gather
        if uniform is None:
            uniform = torch.rand((batch, n + 1), generator=generator, device=target_probs.device)
        ids = draft_token_ids.long()
    else:
        import numpy
        gather = lambda array, axis, at: numpy.take_along_axis(array, at, axis)
        if uniform is None:
            generator = generator or numpy.random.default_rng()
            uniform = generator.random((batch, n + 1), "float32")
        ids = draft_token_ids.astype("int64")
    verdict = verify(draft_token_ids, target_probs, draft_probs, target_is_probs=True,
                     draft_is_probs=True, accept_uniform=uniform[:, :n],
                     sample_uniform=uniform[:, n])
    at = ids.clip(0, target_probs.shape[2] - 1)[:, :, None]
    p, q = (gather(probs, 2, at)[:, :, 0] for probs in (target_probs[:, :n], draft_probs))
    passes = (uniform[:, :n] * q < p) & (ids == at[:, :, 0])
    accepted, emitted = passes.sum(1), verdict.accepted
    accepted = _array(target_probs, accepted, (batch,), "int32")
    for given, number in ((maybe_output_accepted_token_num, accepted),
                          (maybe_output_emitted_draft_token_num, emitted)):
        if given is not None:
            given += number
    if maybe_output_accepted_token_num is not None:
        accepted = maybe_output_accepted_token_num
    if maybe_output_emitted_draft_token_num is not None:
        emitted = maybe_output_emitted_draft_token_num
    return verdict.tokens, accepted, emitted


# ---- Hugging Face models


class _Cached:
    """A model and its cache. All rows have the same columns; one that a row does not use, because
    it is padding or a rejected draft, is masked (the kit's gap mode, C2)."""

    def __init__(self, model: Any, mask: Any):
        self.model, self.mask = model, mask[:, :0]
        self.cache: Any = None

    def __call__(self, tokens: Any, used: Any, positions: Any) -> Any:
        """Logits [batch, columns, vocab] of more columns."""
        torch = sys.modules["torch"]
        self.mask = torch.cat([self.mask, used.to(self.mask.dtype)], 1)
        out = self.model(input_ids=tokens, attention_mask=self.mask, use_cache=True,
                         position_ids=positions.clamp(min=0), past_key_values=self.cache)
        self.cache = out.past_key_values
        return out.logits if out.logits.dtype != torch.float64 else out.logits.float()

    def keep(self, used: Any) -> None:
        """Of the last columns, those that rows go on with; what no row uses at the end goes."""
        self.mask[:, self.mask.shape[1] - used.shape[1]:] = used.to(self.mask.dtype)
        columns = int(self.mask.any(0).nonzero()[-1]) + 1
        if columns < self.mask.shape[1]:
            self.cache.crop(columns - self.mask.shape[1])  # below 0: how many go
            self.mask = self.mask[:, :columns]


def generate(target: Any, assistant: Any, input_ids: Any, *, attention_mask: Any = None,
             max_new_tokens: int = 20, num_draft: int = 4, rule: str = "greedy",
             temperature: Any = None, seed: Any = 0, top_k: Any = None, top_p: Any = None,
             min_p: Any = None, eos_token_id: int | Sequence[int] | None = None,
             pad_token_id: int = 0, **lossy: Any) -> Any:
    """Tokens [batch, prompt + new] of a Hugging Face model, with drafts from a smaller one of the
    same vocabulary; assistant None: without. Prompts are padded on the left. rule: of RULES;
    coupled: the text does not depend on the assistant; request b has seed + b. lossy: what verify
    tells lossy rules, as epsilon=0.3; what is not given relaxes nothing."""
    import torch
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if not bool(attention_mask[:, -1].all()):
        raise ValueError("prompts must be padded on the left")
    batch, prompt = input_ids.shape
    n = num_draft if assistant is not None else 0
    eos = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id or ())
    one = torch.ones((batch, 1), dtype=attention_mask.dtype, device=input_ids.device)
    column = torch.arange(n + 1, device=input_ids.device)[None, :]
    law = dict(temperature=temperature, seed=seed, top_k=top_k, top_p=top_p, min_p=min_p)
    drafts_are = dict(law, of_draft=True, coupled=rule in ("coupled", "typical_draw"))
    if rule in ("greedy", "typical", "relaxed"):  # which have the likeliest token
        drafts_are["temperature"] = 0.0
    text = torch.full((batch, prompt + max_new_tokens), pad_token_id, dtype=input_ids.dtype,
                      device=input_ids.device)
    text[:, :prompt] = input_ids
    end = torch.full((batch,), prompt, device=input_ids.device)  # of each row's text
    length = attention_mask.sum(1)  # without padding; the last token is in no cache yet
    pending = input_ids[:, -1]
    lag, has_lag = torch.zeros_like(pending), torch.zeros_like(pending, dtype=torch.bool)
    done = torch.zeros_like(has_lag) if max_new_tokens > 0 else ~torch.zeros_like(has_lag)

    with torch.no_grad():
        models = [_Cached(model, attention_mask) for model in (target, assistant)[:1 + (n > 0)]]
        if prompt > 1:
            for model in models:
                model(input_ids[:, :-1], attention_mask[:, :-1],
                      attention_mask[:, :-1].cumsum(1) - 1)
        while not bool(done.all()):
            drafts, q = torch.zeros((batch, n), dtype=torch.int64, device=input_ids.device), []
            for j in range(n):
                if j == 0:  # the last draft of the step before, where it was accepted, then the
                    scores = models[1](torch.stack([lag, pending], 1),  # token behind the drafts
                                       torch.cat([has_lag[:, None], one], 1),
                                       torch.stack([length - 2, length - 1], 1))
                else:
                    scores = models[1](drafts[:, j - 1:j], one, (length + j - 1)[:, None])
                q.append(scores[:, -1])
                sample(q[-1], token=drafts[:, j], position=length, step_row=j, **drafts_are)
            scores = models[0](torch.cat([pending[:, None], drafts], 1), one.expand(-1, n + 1),
                               length[:, None] - 1 + column)
            verdict = verify(drafts, scores, torch.stack(q, 1) if q else None, rule=rule,
                             position=length, eos=eos, **law, **lossy)
            if bool(verdict.row_status.any()):
                raise RuntimeError(f"row_status {verdict.row_status.tolist()}")

            accepted = verdict.accepted.long().masked_fill(done, -1)
            models[0].keep(column <= accepted[:, None])
            if n:
                models[1].keep(torch.cat([has_lag[:, None] & ~done[:, None],
                                          (column <= accepted[:, None])[:, :n]], 1))
            has_lag = (accepted == n) & (n > 0)
            lag = drafts[:, n - 1] if n else lag
            emitted = verdict.emitted.long().masked_fill(done, 0)
            for b in range(batch):
                count = min(int(emitted[b]), prompt + max_new_tokens - int(end[b]))
                text[b, end[b]:end[b] + count] = verdict.tokens[b, :count]
                end[b] += count
            length = length + emitted
            pending = verdict.tokens.gather(1, accepted.clamp(min=0)[:, None])[:, 0].clamp(min=0)
            done = done | verdict.finished.bool() | (end >= prompt + max_new_tokens)
    return text[:, :int(end.max())]


def custom_generate(model: Any, input_ids: Any, assistant: Any = None, num_draft: int = 4,
                    rule: str | None = None, seed: Any = 0, **rest: Any) -> Any:
    """generate() behind the front end of transformers, which knows prompts, limits and sampling:
    model.generate(ids, custom_generate=specverify.custom_generate, assistant=small, ...)."""
    config = rest["generation_config"]
    known = {"TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper",
             "MinPLogitsWarper"}  # what the kit does itself
    others = {type(p).__name__ for p in rest.get("logits_processor") or ()} - known
    if others:
        raise ValueError(f"no such thing as {', '.join(sorted(others))} here")
    law = {}
    if config.do_sample:
        law = {name: getattr(config, name) for name in ("temperature", "top_k", "top_p", "min_p")
               if getattr(config, name, None) is not None}
    return generate(model, assistant, input_ids, attention_mask=rest.get("attention_mask"),
                    max_new_tokens=config.max_length - input_ids.shape[1], num_draft=num_draft,
                    rule=rule or ("token" if config.do_sample else "greedy"), seed=seed,
                    eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id or 0, **law)
