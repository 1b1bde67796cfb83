package events

// Formats returns the versions of the formats that this package writes, by their names.
// docs/upgrading.md lists them.
func Formats() map[string]int {
	return map[string]int{
		"envelope": EnvelopeVersion, "position": positionVersion, "event position": eventPositionVersion, "cursor": cursorVersion,
	}
}
