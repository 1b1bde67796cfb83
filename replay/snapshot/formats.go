package snapshot

// Formats returns the versions of what a snapshot is written in, by name. Its stores have those of their own.
func Formats() map[string]int { return map[string]int{"snapshot manifest": manifestFormat} }
