package command

import (
	"fmt"
	"strings"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// HoleText describes for people a hole in the log: envelopes that the log has lost.
func HoleText(h *skeinv1.LogHole) string {
	if h.GetFirstSequence() == h.GetLastSequence() {
		return fmt.Sprintf("envelope %d", h.GetFirstSequence())
	}
	return fmt.Sprintf("envelopes %d to %d", h.GetFirstSequence(), h.GetLastSequence())
}

// IsStuck reports whether a projection has failed, or stopped at a hole in the log, so that an
// operator must act.
func IsStuck(p *skeinv1.ProjectionStatus) bool {
	return p.GetState() == skeinv1.ProjectionState_PROJECTION_STATE_FAILED || p.GetState() == skeinv1.ProjectionState_PROJECTION_STATE_HELD
}

// ProjectionStateText returns the state of a projection for people.
func ProjectionStateText(s skeinv1.ProjectionState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "PROJECTION_STATE_"))
}
