/* tree_law.cu - A7: the law of what is emitted. The rules in doubles, over all drafts and outcomes
   of small trees, give the target's law, and broken ones do not; the kit decides as often as they
   do; texts of many steps have the target's law, or are the text that the seed or the model gives,
   whatever trees they were drafted in. */

#include "chi2.h"

enum { V = 3, MAX_NODES = 8, LENGTH = 4, CONTEXTS = 1 + 3 + 9 + 27 + 81 + 243 + 729 };

/* -------------------------------------------------------------------------------------- models */

/* p and q behind every text of up to six tokens, in 64ths, which floats have exactly. */
typedef struct model {
    double p[CONTEXTS][V], q[CONTEXTS][V];
} model;

static model m;

/* What requests allow: m is what that leaves of `unlimited`, which is what the kit is given. Masks
   leave out the id that a node's context names; two ids of three at most, most of the mass. */
static model unlimited;
static int filtered, filter_order;

enum { TOP_K = 2 };
static const double top_p = 0.77, min_p = 0.31;

static int mask_behind(int context, const double law[V]) {
    const int without = 7 & ~(1 << context % V);
    double left = 0;
    for (int x = 0; x < V; ++x) left += without >> x & 1 ? law[x] : 0;
    return left > 0 ? without : 7;
}

/* A10 in doubles: how many ids of the order each filter keeps; the fewest are kept by all. */
static void filter_law(double law[V], int mask, int order) {
    int id[V], count = 0, by_k, by_min = 0, by_p = 0;
    double mass = 0, sum = 0;
    for (int x = 0; x < V; ++x) {
        int at = count;
        if (!(mask >> x & 1) || law[x] == 0) continue;
        for (; at > 0 && law[id[at - 1]] < law[x]; --at) id[at] = id[at - 1];
        id[at] = x, count += 1;
    }
    by_k = count < TOP_K ? count : TOP_K;
    while (by_min < count && law[id[by_min]] >= min_p * law[id[0]]) by_min += 1;
    for (int i = 0; i < (order == SPECV_TOP_P_OF_ALL        ? count
                         : order == SPECV_TOP_K_TOP_P_MIN_P ? by_k
                         : by_k < by_min                    ? by_k
                                                            : by_min);
         ++i)
        mass += law[id[i]];
    while (by_p < count && sum < top_p * mass) sum += law[id[by_p++]];
    if (by_k < count) count = by_k;
    if (by_min < count) count = by_min;
    if (by_p < count) count = by_p;
    sum = 0;
    for (int i = 0; i < count; ++i) sum += law[id[i]];
    for (int x = 0; x < V; ++x) {
        int kept = 0;
        for (int i = 0; i < count; ++i) kept |= id[i] == x;
        law[x] = kept ? law[x] / sum : 0;
    }
}

static int behind(int context, int token) { return V * context + 1 + token; }

static void draw_law(double law[V]) {
    int left = 64;
    for (int x = 0; x < V; ++x) {
        const int part = x == V - 1 ? left : t_chance(10) ? 0 : (int)t_below(left + 1);
        law[x] = part / 64., left -= part;
    }
}

static void draw_model(void) {
    for (int context = 0; context < CONTEXTS; ++context)
        draw_law(m.p[context]), draw_law(m.q[context]);
    unlimited = m;
    for (int context = 0; context < CONTEXTS && filtered; ++context) {
        filter_law(m.p[context], mask_behind(context, unlimited.p[context]), filter_order);
        filter_law(m.q[context], 7, filter_order);
    }
}

/* --------------------------------------------------------------------------------------- trees */

typedef struct tree {
    const char *name;
    int nodes;
    int parent[MAX_NODES];
} tree;

static const tree trees[] = {
    {"(2)", 3, {-1, 0, 0}},
    {"(3)", 4, {-1, 0, 0, 0}},
    {"(1,2)", 4, {-1, 0, 1, 1}},
    {"(1,1,1)", 4, {-1, 0, 1, 2}},
    {"(2,1)", 5, {-1, 0, 0, 1, 2}},
    {"(2,1) depth first", 5, {-1, 0, 1, 0, 3}},
    {"(2,2)", 7, {-1, 0, 0, 1, 1, 2, 2}},
};

/* A tree with drafts, behind a text. */
typedef struct drafted {
    const tree *of;
    int token[MAX_NODES], context[MAX_NODES];
} drafted;

static int next_child(const tree *of, int node, int after) {
    for (int i = (after < node ? node : after) + 1; i < of->nodes; ++i)
        if (of->parent[i] == node) return i;
    return 0;
}

static double positive(double x) { return x > 0 ? x : 0; }

/* Children are proposals: nobody drew them, q of each is 1 at its token. */
static int proposed;

static void propose(double q[V], int token) {
    for (int x = 0; x < V && proposed; ++x) q[x] = x == token;
}

/* q as it is for the child after those that were drawn, without them. */
static void take_away(double q[V], int token, int gone[V]) {
    double sum = 0;
    int others = 0;
    gone[token] = 1;
    q[token] = 0;
    for (int x = 0; x < V; ++x) sum += q[x], others += !gone[x];
    for (int x = 0; x < V; ++x) q[x] = sum > 0 ? q[x] / sum : !gone[x] && others ? 1. / others : 0;
}

/* ------------------------------------------------------------------------- rules in doubles */

/* What may be wrong with a rule. */
typedef enum fault { RIGHT, STALE, WITH_REPLACEMENT, OF_REST, TWICE } fault;

typedef struct law {
    int rule;
    fault fault;
    const drafted *d;
    double cell[MAX_NODES * V]; /* [last node of the path][next token] */
} law;

static int distinct(const law *l) {
    return l->fault != WITH_REPLACEMENT && specv_i_tree_is_distinct(l->rule);
}

/* Behind a rejected child: r and q, P and what of P there is. */
static double reject(const law *l, double r[V], double q[V], int token, int gone[V], double P) {
    double gain = 0, loss = 0, rest;
    if (l->fault == STALE) return P;
    for (int x = 0; x < V; ++x)
        gain += positive(P * r[x] - q[x]), loss += positive(q[x] - P * r[x]);
    rest = loss > 0 ? gain / loss : 1;
    if (l->fault == OF_REST) rest = q[token] < 1 ? gain / (1 - q[token]) : 1;
    for (int x = 0; x < V; ++x) r[x] = gain > 0 ? positive(P * r[x] - q[x]) / gain : r[x];
    if (distinct(l) && !proposed) take_away(q, token, gone);
    return rest < 1 ? rest : 1;
}

static void emit(law *l, int node, const double r[V], double weight) {
    for (int x = 0; x < V; ++x) l->cell[node * V + x] += weight * r[x];
}

/* RECURSIVE: what comes to a node with this probability goes on from there. */
static void go_down(law *l, int node, double weight) {
    const drafted *d = l->d;
    double r[V], q[V];
    int gone[V] = {0};
    memcpy(r, m.p[d->context[node]], sizeof r), memcpy(q, m.q[d->context[node]], sizeof q);
    for (int x = next_child(d->of, node, 0); x; x = next_child(d->of, node, x)) {
        const int token = d->token[x];
        propose(q, token);
        const double rate = r[token] >= q[token] ? r[token] > 0 : r[token] / q[token];
        go_down(l, x, weight * rate);
        weight *= 1 - rate;
        if (weight > 0) reject(l, r, q, token, gone, 1);
    }
    emit(l, node, r, weight);
}

/* TRAVERSAL: what is rejected with the node. */
static double come_up(law *l, int node, double P, double weight) {
    const drafted *d = l->d;
    double r[V], q[V];
    int gone[V] = {0};
    memcpy(r, m.p[d->context[node]], sizeof r), memcpy(q, m.q[d->context[node]], sizeof q);
    for (int x = next_child(d->of, node, 0); x && weight > 0; x = next_child(d->of, node, x)) {
        const int token = d->token[x];
        propose(q, token);
        const double of_r = P * r[token];
        weight = come_up(l, x, of_r >= q[token] ? of_r > 0 : of_r / q[token], weight);
        if (weight > 0) P = reject(l, r, q, token, gone, P);
    }
    if (node == 0) P = 1;
    emit(l, node, r, weight * P);
    return weight * (1 - P);
}

static void flip_coin(law *l, int node, double weight) {
    const drafted *d = l->d;
    double r[V], sum = 0, left = 1;
    memcpy(r, m.p[d->context[node]], sizeof r);
    for (int x = next_child(d->of, node, 0); x; x = next_child(d->of, node, x)) {
        const double p = m.p[d->context[node]][d->token[x]];
        const double rate = r[d->token[x]] > 0 || l->fault == TWICE ? (p < left ? p : left) : 0;
        flip_coin(l, x, weight * rate);
        left -= rate, r[d->token[x]] = 0;
    }
    for (int x = 0; x < V; ++x) sum += r[x];
    for (int x = 0; x < V && sum > 0; ++x) r[x] /= sum;
    emit(l, node, r, weight * left);
}

static void law_of(law *l, int rule, fault f, const drafted *d) {
    l->rule = rule, l->fault = f, l->d = d;
    memset(l->cell, 0, sizeof l->cell);
    if (specv_i_tree_traverses(rule))
        come_up(l, 0, 1, 1);
    else if (rule == SPECV_TREE_ONE_COIN)
        flip_coin(l, 0, 1);
    else
        go_down(l, 0, 1);
}

/* ------------------------------------------------------------------------------ enumeration */

/* Adds what all ways to draw the nodes from `node` on lead to; texts: of LENGTH tokens. */
static void all_drafts(drafted *d, int node, int rule, fault f, int draw_distinct, double weight,
                       double *texts) {
    const tree *of = d->of;
    double q[V];
    int gone[V] = {0};
    if (weight == 0) return;
    if (node == of->nodes) {
        law l;
        law_of(&l, rule, f, d);
        for (int cell = 0; cell < of->nodes * V; ++cell) {
            int path[MAX_NODES], depth = 0, context = 0, num_rest = 1;
            if (!(l.cell[cell] > 0)) continue;
            for (int at = cell / V; at; at = of->parent[at]) path[depth++] = d->token[at];
            int text = 0;
            while (depth) text = text * V + path[--depth], context = behind(context, text % V);
            for (int at = cell / V; at; at = of->parent[at]) ++depth;
            text = text * V + cell % V, context = behind(context, cell % V);
            for (int i = depth + 1; i < LENGTH; ++i) num_rest *= V;
            for (int rest = 0; rest < num_rest; ++rest) { /* what the target goes on with */
                double p = 1;
                int its = context, whole = text;
                for (int unit = num_rest / V; unit; unit /= V) {
                    p *= m.p[its][rest / unit % V], whole = whole * V + rest / unit % V;
                    its = behind(its, rest / unit % V);
                }
                texts[whole] += weight * l.cell[cell] * p;
            }
        }
        return;
    }
    memcpy(q, m.q[d->context[of->parent[node]]], sizeof q);
    for (int x = next_child(of, of->parent[node], 0); x < node && draw_distinct;
         x = next_child(of, of->parent[node], x))
        take_away(q, d->token[x], gone);
    for (int token = 0; token < V; ++token) {
        d->token[node] = token, d->context[node] = behind(d->context[of->parent[node]], token);
        all_drafts(d, node + 1, rule, f, draw_distinct, weight * q[token], texts);
    }
}

static double of_text(int text, int count) {
    int context = 0, unit = 1;
    double p = 1;
    for (int i = 1; i < count; ++i) unit *= V;
    for (; unit; unit /= V) {
        p *= m.p[context][text / unit % V];
        context = behind(context, text / unit % V);
    }
    return p;
}

static double distance(const tree *of, int rule, fault f, int draw_distinct) {
    double texts[81] = {0}, sum = 0;
    drafted d;
    memset(&d, 0, sizeof d);
    d.of = of;
    all_drafts(&d, 1, rule, f, draw_distinct, 1, texts);
    for (int text = 0; text < 81; ++text) sum += fabs(texts[text] - of_text(text, LENGTH)) / 2;
    return sum;
}

/* How far a rule may be from the target's law if drafts are any tokens: the worst of all ways to
   choose the nodes from `node` on. */
static double worst_proposals(drafted *d, int node, int rule, fault f, int differ) {
    const tree *of = d->of;
    double worst = 0, texts[81] = {0}, sum = 0;
    if (node == of->nodes) {
        all_drafts(d, node, rule, f, 0, 1, texts);
        for (int text = 0; text < 81; ++text) sum += fabs(texts[text] - of_text(text, LENGTH)) / 2;
        return sum;
    }
    for (int token = 0; token < V; ++token) {
        int equal = 0;
        for (int x = 1; x < node; ++x)
            equal |= of->parent[x] == of->parent[node] && d->token[x] == token;
        if (equal && differ) continue;
        d->token[node] = token, d->context[node] = behind(d->context[of->parent[node]], token);
        sum = worst_proposals(d, node + 1, rule, f, differ);
        worst = sum > worst ? sum : worst;
    }
    return worst;
}

/* Without draft scores: whatever the drafts are, equal siblings, too. */
static void test_proposals(void) {
    static const struct {
        int rule;
        fault fault;
        const char *what;
    } broken[] = {
        {SPECV_TREE_RECURSIVE, STALE, "p stays between siblings"},
        {SPECV_TREE_TRAVERSAL, STALE, "p stays between siblings"},
        {SPECV_TREE_TRAVERSAL, OF_REST, "P becomes min(Z / (1 - q(x)), 1)"},
    };
    proposed = 1;
    for (int rule = SPECV_TREE_RECURSIVE; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int i = 0; i < T_COUNT(trees); ++i) {
            t_case("proposals, rule %d, tree %s", rule, trees[i].name);
            for (int turn = 0; turn < 2; ++turn) {
                drafted d;
                draw_model();
                memset(&d, 0, sizeof d);
                d.of = &trees[i];
                CHECK(worst_proposals(&d, 1, rule, RIGHT, specv_i_tree_is_distinct(rule)) < 1e-12);
            }
        }
    for (int k = 0; k < T_COUNT(broken); ++k) {
        double worst = 0;
        t_case("proposals, rule %d, %s", broken[k].rule, broken[k].what);
        for (int i = 0; i < 5; ++i) {
            drafted d;
            draw_model();
            memset(&d, 0, sizeof d);
            d.of = &trees[i];
            const double off = worst_proposals(&d, 1, broken[k].rule, broken[k].fault, 0);
            worst = off > worst ? off : worst;
        }
        CHECK(worst > 1e-3);
    }
    proposed = 0;
}

/* Rules as they were published, or built, wrongly. */
static const struct {
    int rule;
    fault fault;
    const char *what;
} broken[] = {
    {SPECV_TREE_RECURSIVE, STALE, "p and q stay between siblings"},
    {SPECV_TREE_RECURSIVE_DISTINCT, STALE, "p and q stay between siblings"},
    {SPECV_TREE_TRAVERSAL, STALE, "p and q stay between siblings"},
    {SPECV_TREE_RECURSIVE_DISTINCT, WITH_REPLACEMENT, "q keeps what was drawn"},
    {SPECV_TREE_TRAVERSAL_DISTINCT, WITH_REPLACEMENT, "q keeps what was drawn"},
    {SPECV_TREE_TRAVERSAL, OF_REST, "P becomes min(Z / (1 - q(x)), 1)"},
    {SPECV_TREE_ONE_COIN, TWICE, "equal siblings count twice"},
};

/* Every rule has the target's law on every tree; what is broken is far from it on some. */
static void test_enumeration(void) {
    for (int rule = SPECV_TREE_ONE_COIN; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int i = 0; i < T_COUNT(trees); ++i) {
            t_case("rule %d, tree %s", rule, trees[i].name);
            for (int turn = 0; turn < 3; ++turn) {
                draw_model();
                CHECK(distance(&trees[i], rule, RIGHT, specv_i_tree_is_distinct(rule)) < 1e-12);
                if (rule == SPECV_TREE_ONE_COIN) CHECK(distance(&trees[i], rule, RIGHT, 1) < 1e-12);
            }
        }
    for (int k = 0; k < T_COUNT(broken); ++k) {
        double worst = 0;
        t_case("rule %d, %s", broken[k].rule, broken[k].what);
        for (int i = 0; i < T_COUNT(trees); ++i) {
            draw_model();
            const double off = distance(&trees[i], broken[k].rule, broken[k].fault,
                                        specv_i_tree_is_distinct(broken[k].rule));
            worst = off > worst ? off : worst;
        }
        CHECK(worst > 1e-3);
    }
}

/* ------------------------------------------------------------------------------------------ kit */

/* Steps of many requests at once: each has a text, a tree behind it, and what models say there. */
enum { MAX_ROWS = 20000 };

static struct {
    int32_t parent[MAX_ROWS * MAX_NODES], token[MAX_ROWS * MAX_NODES], position[MAX_ROWS];
    float p[MAX_ROWS * MAX_NODES * V], q[MAX_ROWS * MAX_NODES * V];
    uint32_t mask[MAX_ROWS * MAX_NODES];
    int32_t top_k[MAX_ROWS];
    float top_p[MAX_ROWS], min_p[MAX_ROWS];
    uint64_t seed[MAX_ROWS];
    int32_t accepted[MAX_ROWS], next[MAX_ROWS], path[MAX_ROWS * MAX_NODES];
    int32_t out[MAX_ROWS * MAX_NODES];
    uint32_t status[MAX_ROWS];
    int text_len[MAX_ROWS], text[MAX_ROWS][16];
} s;

static char scratch[1 << 29] __attribute__((aligned(16)));

static void put_scores(int row, int nodes, int node, int context, int logits) {
    for (int x = 0; x < V; ++x) {
        const int64_t at = ((int64_t)row * nodes + node) * V + x;
        s.p[at] = (float)(logits ? log(unlimited.p[context][x]) : unlimited.p[context][x]);
        s.q[at] = (float)(logits ? log(unlimited.q[context][x]) : unlimited.q[context][x]);
    }
    s.mask[(int64_t)row * nodes + node] = (uint32_t)mask_behind(context, unlimited.p[context]);
    s.top_k[row] = TOP_K, s.top_p[row] = (float)top_p, s.min_p[row] = (float)min_p;
}

static void verify(int rows, const tree *of, int rule, int logits) {
    specv_verify_tree_desc d = SPECV_ZERO;
    d.rule = rule, d.trees.batch = rows, d.trees.max_nodes = of->nodes, d.vocab = V;
    d.trees.parent = s.parent, d.trees.token = s.token;
    d.target.data = s.p, d.target.dtype = logits ? SPECV_LOGITS_F32 : SPECV_PROBS_F32;
    if (specv_i_tree_needs_draft(rule) && !proposed)
        d.draft.data = s.q, d.draft.dtype = d.target.dtype;
    d.seed = s.seed, d.position = s.position, d.accepted_len = s.accepted, d.next_token = s.next;
    d.path = s.path, d.out_tokens = s.out, d.row_status = s.status;
    d.scratch = scratch, d.scratch_bytes = sizeof scratch;
    if (filtered) {
        d.filters.top_k = s.top_k, d.filters.top_p = s.top_p, d.filters.min_p = s.min_p;
        d.filters.order = filter_order;
        if (d.draft.data) d.draft_filters = d.filters;
        d.filters.mask = s.mask;
    }
    CHECK_EQ(specv_ref_verify_tree(&d), SPECV_OK, -1);
}

/* Drafts as the rule wants them. */
static void draw_drafts(drafted *d, int context, int draw_distinct) {
    d->context[0] = context;
    for (int i = 1; i < d->of->nodes; ++i) {
        const int parent = d->of->parent[i];
        double q[V], u = t_uniform();
        int gone[V] = {0}, token = V - 1;
        memcpy(q, m.q[d->context[parent]], sizeof q);
        for (int x = next_child(d->of, parent, 0); x < i && draw_distinct;
             x = next_child(d->of, parent, x))
            take_away(q, d->token[x], gone);
        for (int x = V - 1; x >= 0; --x) /* the last one that has any, if u is beyond the sum */
            if (q[token] == 0) token = x;
        for (int x = 0; x < V; u -= q[x++])
            if (u < q[x]) {
                token = x;
                break;
            }
        d->token[i] = token, d->context[i] = behind(d->context[parent], token);
    }
}

static void put_tree(int row, const drafted *d, int logits) {
    const int nodes = d->of->nodes;
    for (int i = 0; i < nodes; ++i) {
        s.parent[row * nodes + i] = d->of->parent[i], s.token[row * nodes + i] = d->token[i];
        put_scores(row, nodes, i, d->context[i], logits);
    }
}

static statistic of_cells(const char *name, const double *seen, const double *expected, int count) {
    chi2 c;
    statistic result;
    memset(&c, 0, sizeof c), memset(&result, 0, sizeof result);
    add_cells(&c, seen, expected, count);
    result.name = name, result.value = c.statistic, result.df = c.df, result.p = p_of_cells(&c);
    return result;
}

/* Where paths end and with which token: the same drafts under many seeds. */
static void test_decisions(void) {
    const int first_rule = proposed ? SPECV_TREE_RECURSIVE : SPECV_TREE_ONE_COIN;
    const int rows = t.quick || filtered ? 5000 : MAX_ROWS;
    for (int rule = first_rule; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int i = 0; i < T_COUNT(trees); ++i)
            for (int logits = 0; logits < 2; ++logits) {
                double seen[MAX_NODES * V] = {0}, expected[MAX_NODES * V];
                drafted d;
                law l;
                t_case("decisions of rule %d, tree %s, %s%s%s", rule, trees[i].name,
                       logits ? "logits" : "probabilities", filtered ? ", filtered" : "",
                       proposed ? ", proposals" : "");
                do { /* a law with more than one outcome */
                    draw_model();
                    memset(&d, 0, sizeof d);
                    d.of = &trees[i];
                    draw_drafts(&d, 0, specv_i_tree_is_distinct(rule));
                    law_of(&l, rule, RIGHT, &d);
                    int many = 0;
                    for (int cell = 0; cell < MAX_NODES * V; ++cell)
                        many += l.cell[cell] * rows >= 2 * least_expected;
                    if (many > 1) break;
                } while (1);
                for (int row = 0; row < rows; ++row) {
                    put_tree(row, &d, logits);
                    s.seed[row] = t_random(), s.position[row] = (int32_t)t_below(1000);
                }
                verify(rows, &trees[i], rule, logits);
                for (int row = 0; row < rows; ++row) {
                    const int node = s.path[row * trees[i].nodes + s.accepted[row]];
                    seen[node * V + s.next[row]] += 1;
                }
                for (int cell = 0; cell < MAX_NODES * V; ++cell)
                    expected[cell] = l.cell[cell] < 1e-9 && !logits ? 0 : l.cell[cell] * rows;
                for (int cell = 0; cell < MAX_NODES * V; ++cell)
                    if (l.cell[cell] < 1e-9) CHECK(seen[cell] == 0), expected[cell] = 0;
                judge_statistic(of_cells("decisions", seen, expected, MAX_NODES * V), t.quick);
            }
}

/* ---------------------------------------------------------------------------------------- texts */

static int text_number(int row) {
    int number = 0;
    for (int i = 0; i < LENGTH; ++i) number = number * V + s.text[row][i];
    return number;
}

/* A row as a rule in doubles decides it. */
static void play(int row, int rule, fault f, const drafted *d) {
    law l;
    double all = 0, u;
    int cell = 0, depth = 0;
    law_of(&l, rule, f, d);
    for (int i = 0; i < d->of->nodes * V; ++i) all += l.cell[i];
    u = t_uniform() * all;
    for (int i = 0; i < d->of->nodes * V; u -= l.cell[i++]) {
        if (l.cell[i] > 0) cell = i; /* the last one that has any, if u is beyond the sum */
        if (u < l.cell[i]) break;
    }
    for (int at = cell / V; at; at = d->of->parent[at]) ++depth;
    s.accepted[row] = depth;
    s.out[row * d->of->nodes + depth] = cell % V;
    for (int at = cell / V; at; at = d->of->parent[at])
        s.out[row * d->of->nodes + --depth] = d->token[at];
}

/* played: null, or not the kit but the rule in doubles decides, with this fault. */
static void run_texts(int rows, int rule, int logits, const tree *always, const fault *played) {
    for (int row = 0; row < rows; ++row) s.seed[row] = t_random(), s.text_len[row] = 0;
    for (int left = 1; left;) {
        const tree *tr = always ? always : &trees[t_below(T_COUNT(trees))];
        left = 0;
        for (int row = 0; row < rows; ++row) {
            drafted d;
            int context = 0;
            memset(&d, 0, sizeof d);
            d.of = tr;
            for (int i = 0; i < s.text_len[row] && s.text_len[row] < LENGTH; ++i)
                context = behind(context, s.text[row][i]);
            if (s.text_len[row] < LENGTH) draw_drafts(&d, context, specv_i_tree_is_distinct(rule));
            for (int i = 0; i < tr->nodes; ++i) /* beyond what models know of: as at the start */
                if (d.context[i] >= CONTEXTS) d.context[i] = 0;
            if (played)
                play(row, rule, *played, &d);
            else
                put_tree(row, &d, logits);
            s.position[row] = s.text_len[row];
        }
        if (!played) verify(rows, tr, rule, logits);
        for (int row = 0; row < rows; ++row) {
            if (s.text_len[row] >= LENGTH) continue;
            for (int i = 0; i <= s.accepted[row]; ++i)
                s.text[row][s.text_len[row]++] = s.out[row * tr->nodes + i];
            left |= s.text_len[row] < LENGTH;
        }
    }
}

static statistic of_texts(int rows) {
    double seen[81] = {0}, expected[81];
    for (int row = 0; row < rows; ++row) seen[text_number(row)] += 1;
    for (int text = 0; text < 81; ++text) expected[text] = rows * of_text(text, LENGTH);
    return of_cells("texts", seen, expected, 81);
}

/* Several steps with the keys of production: one seed a request, the position goes on. */
static void test_texts(void) {
    const int first_rule = proposed ? SPECV_TREE_RECURSIVE : SPECV_TREE_COUPLED;
    const int rows = t.quick || filtered ? 5000 : MAX_ROWS;
    for (int rule = first_rule; rule <= SPECV_TREE_TRAVERSAL_DISTINCT; ++rule)
        for (int logits = 0; logits < 2; ++logits) {
            t_case("texts of rule %d, %s%s%s", rule, logits ? "logits" : "probabilities",
                   filtered ? ", filtered" : "", proposed ? ", proposals" : "");
            draw_model();
            run_texts(rows, rule, logits, logits ? &trees[5] : &trees[6], NULL);
            /* What is allowed may leave one text: then it is all that was seen. */
            judge_statistic(of_texts(rows), t.quick || filtered);
        }
}

/* What is broken does not come through the same test, what is right, played likewise, does. */
static void test_broken_texts(void) {
    const int rows = t.quick ? 5000 : MAX_ROWS;
    for (int k = 0; k < T_COUNT(broken); ++k) {
        double least = 1;
        const fault right = RIGHT;
        t_case("texts of rule %d, %s", broken[k].rule, broken[k].what);
        for (int turn = 0; turn < 4; ++turn) {
            draw_model();
            run_texts(rows, broken[k].rule, 0, &trees[6], &broken[k].fault);
            const double p = of_texts(rows).p;
            least = p < least ? p : least;
        }
        CHECK(least < threshold());
        run_texts(rows, broken[k].rule, 0, &trees[6], &right);
        judge_statistic(of_texts(rows), t.quick);
    }
}

/* COUPLED: the text that the sampler gives with the seed. GREEDY: that of plain decoding. */
static void test_same_text(void) {
    const int rows = t.quick ? 300 : 5000;
    for (int rule = SPECV_TREE_GREEDY; rule <= SPECV_TREE_COUPLED; ++rule)
        for (int turn = 0; turn < 8; ++turn) {
            t_case("rule %d and plain decoding, %s", rule, turn % 2 ? "logits" : "probabilities");
            draw_model();
            run_texts(rows, rule, turn % 2, turn < 4 ? &trees[turn] : NULL, NULL);
            for (int row = 0; row < rows; ++row)
                for (int i = 0, context = 0; i < LENGTH; ++i) {
                    specv_sample_desc d = SPECV_ZERO;
                    int32_t token;
                    float zero = 0;
                    put_scores(0, 1, 0, context, turn % 2);
                    d.batch = 1, d.vocab = V, d.scores.data = s.p, d.token = &token;
                    d.scores.dtype = turn % 2 ? SPECV_LOGITS_F32 : SPECV_PROBS_F32;
                    d.seed = &s.seed[row], d.position = &i, d.method = SPECV_SAMPLE_GUMBEL;
                    d.stream = SPECV_STREAM_COUPLED;
                    if (rule == SPECV_TREE_GREEDY) d.temperature = &zero;
                    d.scratch = scratch, d.scratch_bytes = sizeof scratch;
                    CHECK_EQ(specv_ref_sample(&d), SPECV_OK, -1);
                    CHECK_EQ(s.text[row][i], token, row);
                    context = behind(context, token);
                }
        }
}

/* ONE_COIN never accepts what p has nothing of, also where it comes first. */
static void test_impossible(void) {
    const tree *star = &trees[1];
    t_case("a coin of 0");
    CHECK(!specv_i_coin_falls(0, 0)), CHECK(specv_i_coin_falls(0, 1)),
        CHECK(!specv_i_coin_falls(1, 1));
    for (int logits = 0; logits < 2; ++logits) {
        drafted d;
        t_case("drafts of probability 0, %s", logits ? "logits" : "probabilities");
        memset(&d, 0, sizeof d);
        d.of = star;
        m.p[0][0] = 0, m.p[0][1] = 0.25, m.p[0][2] = 0.75, unlimited = m;
        for (int i = 1; i < 4; ++i) d.token[i] = i == 3, d.context[i] = behind(0, d.token[i]);
        for (int row = 0; row < MAX_ROWS; ++row) {
            put_tree(row, &d, logits);
            s.seed[row] = t_random(), s.position[row] = 0;
        }
        verify(MAX_ROWS, star, SPECV_TREE_ONE_COIN, logits);
        for (int row = 0; row < MAX_ROWS; ++row) {
            CHECK(s.path[row * star->nodes + 1] == -1 || s.path[row * star->nodes + 1] == 3);
            if (s.accepted[row] == 0) CHECK_EQ(s.next[row], 2, row);
            CHECK_EQ(s.status[row], 0, row);
        }
    }
}

/* Both with masks, top_k, top_p and min_p, of p and q, in every order. */
static void test_filtered(void) {
    filtered = 1;
    for (filter_order = t.quick; filter_order < (t.quick ? 2 : 3); ++filter_order)
        test_decisions(), test_texts();
    filtered = 0;
}

/* Decisions and texts without draft scores. */
static void test_proposed(void) {
    proposed = 1;
    test_decisions(), test_texts();
    proposed = 0;
}

int main(int argc, char **argv) {
    static const t_group groups[] = {
        {"enumeration", test_enumeration},
        {"decisions", test_decisions},
        {"texts", test_texts},
        {"broken-texts", test_broken_texts},
        {"same-text", test_same_text},
        {"impossible", test_impossible},
        {"filtered", test_filtered},
        {"proposals", test_proposals},
        {"proposed", test_proposed},
    };
    t.at_end = list_statistics;
    return t_main(argc, argv, groups, T_COUNT(groups));
}
