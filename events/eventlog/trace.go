package eventlog

import "github.com/nats-io/nats.go"

const (
	// traceHeader is the header of a message that holds the W3C traceparents of the calls in it. It
	// is not part of the log: nothing depends on it, and the archive does not keep it. It is not
	// named "traceparent", because NATS itself acts on a header of that name.
	traceHeader = "Skein-Traceparent"
	// maxTraces limits the number of traces per envelope, and with it the size of the header: an
	// envelope may hold hundreds of calls.
	maxTraces = 8
	// traceParentBytes is the length of a traceparent.
	traceParentBytes = 55
)

// addTraces adds the traceparents of the calls to the headers of their envelope. It skips calls
// without one.
func addTraces(h nats.Header, calls []*call) {
	for _, c := range calls {
		if len(c.trace) == traceParentBytes && len(h[traceHeader]) < maxTraces {
			h[traceHeader] = append(h[traceHeader], c.trace)
		}
	}
}

// parseTraces returns the traceparents in the headers of an envelope. It skips malformed values,
// because any NATS client may have written the header.
func parseTraces(h nats.Header) (traces []string) {
	for _, trace := range h[traceHeader] {
		if len(trace) == traceParentBytes && len(traces) < maxTraces {
			traces = append(traces, trace)
		}
	}
	return traces
}
