package events

// Formats returns the versions of what is written by this package and outlives the process, by name: for people, and for the
// rules of docs/upgrading.md.
func Formats() map[string]int {
	return map[string]int{
		"envelope": EnvelopeVersion, "position": positionVersion, "event position": eventPositionVersion, "cursor": cursorVersion,
	}
}
