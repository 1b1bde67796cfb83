package archive

// Formats returns the versions of the objects of an archive, by name.
func Formats() map[string]int {
	return map[string]int{
		"archive segment": segmentVersion, "archive manifest": manifestVersion, "archive repeats": repeatsVersion,
	}
}
