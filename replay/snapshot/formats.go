package snapshot

// Formats returns the versions of the formats of a snapshot, by name. The stores in it have formats of their own.
func Formats() map[string]int { return map[string]int{"snapshot manifest": manifestFormat} }
