package eventlog

import "github.com/nats-io/nats.go"

const (
	// traceHeader is the header of a message with the traces of the calls in it, if they are followed: as many lines as there
	// are, each as W3C's traceparent. It is no part of the log: nothing depends on it, and the archive does not keep it. NATS gives
	// a header of W3C's own name a meaning.
	traceHeader = "Skein-Traceparent"
	// maxTraces bounds how many calls of one envelope are followed.
	maxTraces = 8
	// traceParentBytes is the length of a traceparent.
	traceParentBytes = 55
)

// addTraces puts the traces of calls that are followed, few as they are, beside an envelope.
func addTraces(h nats.Header, calls []*call) {
	for _, c := range calls {
		if len(c.trace) == traceParentBytes && len(h[traceHeader]) < maxTraces {
			h[traceHeader] = append(h[traceHeader], c.trace)
		}
	}
}

// tracesOf returns them. Whoever publishes may have written anything there.
func tracesOf(h nats.Header) (traces []string) {
	for _, t := range h[traceHeader] {
		if len(t) == traceParentBytes && len(traces) < maxTraces {
			traces = append(traces, t)
		}
	}
	return traces
}
