package snapshot

// Formats returns the versions of the formats of a snapshot, by the names of the formats. The
// stores in a snapshot have formats of their own.
func Formats() map[string]int {
	return map[string]int{"snapshot manifest": manifestFormat}
}
