package eventlog

import "github.com/nats-io/nats.go"

const (
	// traceHeader is the header of a message with the traces of the calls in it, one W3C traceparent each. It is no part of the
	// log: nothing depends on it, and the archive does not keep it. The header is not named "traceparent" because NATS acts on that
	// one itself.
	traceHeader = "Skein-Traceparent"
	// maxTraces bounds the traces of one envelope, and with them its size: an envelope may hold hundreds of calls.
	maxTraces = 8
	// traceParentBytes is the length of a traceparent.
	traceParentBytes = 55
)

// addTraces adds the traces of the sampled calls to the headers of an envelope.
func addTraces(h nats.Header, calls []*call) {
	for _, c := range calls {
		if len(c.trace) == traceParentBytes && len(h[traceHeader]) < maxTraces {
			h[traceHeader] = append(h[traceHeader], c.trace)
		}
	}
}

// tracesOf returns the traces of an envelope. Any NATS client may have written the header, so malformed values are skipped.
func tracesOf(h nats.Header) (traces []string) {
	for _, t := range h[traceHeader] {
		if len(t) == traceParentBytes && len(traces) < maxTraces {
			traces = append(traces, t)
		}
	}
	return traces
}
