// Streams, events, and graphs made by stream capture.
//
// Outside capture a task runs at once.  While a stream captures, a task becomes a node that depends
// on the stream's last nodes; events carry such dependencies to other streams, which then join the
// capture.  A graph launch runs the nodes in the order of capture, or, under a seed, in a random
// order that respects the dependencies, so that a missing one has a chance to show.
#include "runtime.hpp"
#include <algorithm>
#include <set>
#include <thread>

namespace ptxrun::runtime {
namespace {

using Nodes = std::set<size_t>;

struct Node {
  std::string kind;
  Task task;
  Nodes dependencies;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Stream;

struct Capture {
  Graph graph;
  Stream *origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread; // that began it
  bool invalid = false;
  std::set<Stream *> streams;
};

struct Stream {
  bool isLegacy = false;
  bool isBlocking = true; // synchronises with the legacy stream
  int priority = 0;
  std::shared_ptr<Capture> capture;
  Nodes last; // what the next captured node depends on
};

struct Event {
  std::chrono::steady_clock::time_point time;
  cudaStream_t stream = nullptr; // that it was recorded in
  uint64_t copies = 0;           // the mark of those before it
  bool recorded = false, timing = true;
  std::shared_ptr<Capture> capture;
  Nodes last;
};

Stream legacyStream;
std::set<std::shared_ptr<Capture>> activeCaptures;

Stream &streamOf(cudaStream_t handle) {
  bool isDefault = !handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  legacyStream.isLegacy = true;
  return isDefault ? legacyStream : *reinterpret_cast<Stream *>(handle);
}
Event &eventOf(cudaEvent_t handle) { return *reinterpret_cast<Event *>(handle); }

void invalidateAll() {
  for (auto &capture : activeCaptures) capture->invalid = true;
}

// The legacy stream waits for all blocking streams, so it must not be used while one captures.
cudaError_t refuseImplicit() {
  Turn turn;
  for (auto &capture : activeCaptures)
    if (capture->origin->isBlocking) {
      capture->invalid = true;
      return result(cudaErrorStreamCaptureImplicit);
    }
  return cudaSuccess;
}

cudaStream_t taskStream = nullptr;

cudaError_t runTask(const std::string &kind, const Task &task) {
  cudaError_t error = task();
  state().kernelBefore = kind == "kernel";
  return error;
}

cudaError_t runGraph(const Graph &graph) {
  state().kernelBefore = false;
  std::vector<size_t> waiting(graph.nodes.size());
  for (size_t k = 0; k < waiting.size(); k++) waiting[k] = k;
  static uint64_t launches = 0;
  uint64_t seed = simulator().options().seed, random = seed * 6364136223846793005u + ++launches;
  std::set<size_t> done;
  while (!waiting.empty()) {
    std::vector<size_t> ready;
    for (size_t k : waiting) {
      const Nodes &needs = graph.nodes[k].dependencies;
      if (std::includes(done.begin(), done.end(), needs.begin(), needs.end())) ready.push_back(k);
    }
    random = random * 6364136223846793005u + 1442695040888963407u;
    size_t chosen = ready[seed ? (random >> 33) % ready.size() : 0];
    const Node &node = graph.nodes[chosen];
    if (cudaError_t error = runTask(node.kind, node.task)) return error;
    done.insert(chosen);
    waiting.erase(std::find(waiting.begin(), waiting.end(), chosen));
  }
  return cudaSuccess;
}

cudaError_t endCapture(Stream &stream, Graph **graph) {
  Turn turn;
  std::shared_ptr<Capture> capture = stream.capture;
  *graph = nullptr;
  if (!capture) return result(cudaErrorIllegalState);
  if (capture->origin != &stream) return result(cudaErrorStreamCaptureUnmatched);
  Nodes unjoined;
  for (size_t k = 0; k < capture->graph.nodes.size(); k++) unjoined.insert(k);
  for (const Node &node : capture->graph.nodes)
    for (size_t needed : node.dependencies) unjoined.erase(needed);
  for (size_t k : stream.last) unjoined.erase(k);
  for (Stream *member : capture->streams) {
    member->capture.reset();
    member->last.clear();
  }
  activeCaptures.erase(capture);
  if (capture->invalid) return result(cudaErrorStreamCaptureInvalidated);
  if (!unjoined.empty()) return result(cudaErrorStreamCaptureUnjoined);
  *graph = new Graph(std::move(capture->graph));
  return cudaSuccess;
}

cudaError_t synchronise() {
  Turn turn;
  state().kernelBefore = false;
  return state().failed ? result(cudaErrorLaunchFailure) : cudaSuccess;
}

} // namespace

cudaStream_t runningStream() { return taskStream; }
bool waitsFor(cudaStream_t stream, cudaStream_t other) {
  return &streamOf(stream) == &streamOf(other) ||
         (streamOf(stream).isLegacy && streamOf(other).isBlocking);
}

bool isCapturing(cudaStream_t stream) { return streamOf(stream).capture != nullptr; }

cudaError_t refuseDuringCapture(const char *what) {
  Turn turn;
  for (auto &capture : activeCaptures)
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal &&
         capture->thread == std::this_thread::get_id())) {
      invalidateAll();
      return complain(cudaErrorStreamCaptureUnsupported,
                      std::string(what) + " while a stream captures");
    }
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, const char *kind, Task task) {
  Turn turn;
  Stream &stream = streamOf(handle);
  if (stream.isLegacy)
    if (cudaError_t error = refuseImplicit()) return error;
  if (!stream.capture) {
    taskStream = handle;
    return runTask(kind, task);
  }
  if (stream.capture->invalid) return result(cudaErrorStreamCaptureInvalidated);
  std::vector<Node> &nodes = stream.capture->graph.nodes;
  nodes.push_back({kind, std::move(task), stream.last});
  stream.last = {nodes.size() - 1};
  return cudaSuccess;
}

} // namespace ptxrun::runtime

using namespace ptxrun::runtime;

extern "C" {

// ---- streams
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  Stream *made = new Stream;
  made->isBlocking = !(flags & cudaStreamNonBlocking);
  made->priority = priority;
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = streamOf(stream).priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  *flags = streamOf(stream).isBlocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream || streamOf(stream).isLegacy) return result(cudaErrorInvalidResourceHandle);
  if (Stream *s = reinterpret_cast<Stream *>(stream); s->capture) s->capture->streams.erase(s);
  deliverCopies(stream, copiesOnTheirWay());
  delete reinterpret_cast<Stream *>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (isCapturing(stream)) {
    streamOf(stream).capture->invalid = true;
    return result(cudaErrorStreamCaptureUnsupported);
  }
  deliverCopies(stream, copiesOnTheirWay());
  return synchronise();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaDeviceSynchronize() {
  if (cudaError_t error = refuseDuringCapture("cudaDeviceSynchronize")) return error;
  deliverAllCopies();
  return synchronise();
}

// ---- events
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  Event *made = new Event;
  made->timing = !(flags & cudaEventDisableTiming);
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event *>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  Stream &stream = streamOf(handle);
  if (stream.isLegacy)
    if (cudaError_t error = refuseImplicit()) return error;
  Event &e = eventOf(event);
  e.capture = stream.capture;
  e.last = stream.last;
  if (!stream.capture) {
    e.time = std::chrono::steady_clock::now();
    e.stream = handle;
    e.copies = copiesOnTheirWay();
    e.recorded = true;
  }
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (eventOf(event).capture) {
    eventOf(event).capture->invalid = true;
    return result(cudaErrorCapturedEvent);
  }
  deliverCopies(eventOf(event).stream, eventOf(event).copies);
  return synchronise();
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Event &a = eventOf(begin), &b = eventOf(end);
  if (!a.recorded || !b.recorded || !a.timing || !b.timing)
    return result(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(b.time - a.time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  Turn turn;
  Stream &stream = streamOf(handle);
  const Event &e = eventOf(event);
  if (!e.capture && !stream.capture) { // everything before is done already
    shareCopies(e.stream, e.copies, handle);
    return cudaSuccess;
  }
  if (!e.capture) { // a capturing stream must not wait for uncaptured work
    stream.capture->invalid = true;
    return result(cudaErrorStreamCaptureIsolation);
  }
  if (stream.isLegacy) return result(cudaErrorStreamCaptureImplicit);
  if (stream.capture && stream.capture != e.capture) return result(cudaErrorStreamCaptureMerge);
  if (!stream.capture) { // fork: the stream joins the capture
    stream.capture = e.capture;
    stream.last.clear();
    e.capture->streams.insert(&stream);
  }
  stream.last.insert(e.last.begin(), e.last.end());
  return cudaSuccess;
}

// ---- capture
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Turn turn;
  Stream &stream = streamOf(handle);
  if (stream.isLegacy) return result(cudaErrorStreamCaptureUnsupported);
  if (stream.capture) return result(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams.insert(&stream);
  stream.capture = capture;
  stream.last.clear();
  activeCaptures.insert(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  return endCapture(streamOf(handle), reinterpret_cast<Graph **>(graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
  Stream &stream = streamOf(handle);
  if (stream.isLegacy)
    if (cudaError_t error = refuseImplicit()) return error;
  *status = !stream.capture           ? cudaStreamCaptureStatusNone
            : stream.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  static cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

// ---- graphs: an executable graph is a copy
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  *graph = reinterpret_cast<cudaGraph_t>(new Graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (!graph) return result(cudaErrorInvalidValue);
  *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph *>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Graph *graph = reinterpret_cast<Graph *>(executable);
  if (!graph) return result(cudaErrorInvalidValue);
  if (isCapturing(stream))
    return complain(cudaErrorNotSupported,
                    "a graph launched during capture (child graph) is not supported by ptxrun");
  return enqueue(stream, "graph", [graph] { return runGraph(*graph); });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info) {
  Graph &old = *reinterpret_cast<Graph *>(executable);
  const Graph &fresh = *reinterpret_cast<Graph *>(graph);
  *info = {};
  auto sameShape = [](const Node &a, const Node &b) {
    return a.kind == b.kind && a.dependencies == b.dependencies;
  };
  bool same = old.nodes.size() == fresh.nodes.size() &&
              std::equal(old.nodes.begin(), old.nodes.end(), fresh.nodes.begin(), sameShape);
  info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
  if (!same) return result(cudaErrorGraphExecUpdateFailure);
  old = fresh;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  Graph &g = *reinterpret_cast<Graph *>(graph);
  if (nodes)
    for (size_t k = 0; k < std::min(*count, g.nodes.size()); k++)
      nodes[k] = reinterpret_cast<cudaGraphNode_t>(&g.nodes[k]);
  *count = g.nodes.size();
  return cudaSuccess;
}
// What allocation nodes hold; there are none.
cudaError_t cudaDeviceGetGraphMemAttribute(int number, cudaGraphMemAttributeType attribute,
                                           void *value) {
  if (number) return result(cudaErrorInvalidDevice);
  if (attribute < cudaGraphMemAttrUsedMemCurrent || attribute > cudaGraphMemAttrReservedMemHigh)
    return result(cudaErrorInvalidValue);
  *static_cast<uint64_t *>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGraphMemTrim(int number) {
  return result(number ? cudaErrorInvalidDevice : cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph *>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Graph *>(executable);
  return cudaSuccess;
}
}
