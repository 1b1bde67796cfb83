package store

// WithDirectorySyncs is withDirectorySyncs.
func WithDirectorySyncs(fs FS, dir string, handleError func(error)) FS {
	return withDirectorySyncs(fs, dir, handleError)
}
