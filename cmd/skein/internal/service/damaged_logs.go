package service

import (
	"io/fs"
	"os"
	"path/filepath"
)

// DamagedLogPrefix begins the names of the directories, below the data directory, to which
// `skein replay archive restore` moves damaged logs. The time of the move follows.
const DamagedLogPrefix = LogDir + "-damaged-"

// DamagedLogs returns the directories of the damaged logs below a data directory, the oldest first.
// They stay there until an operator removes them.
func DamagedLogs(dataDir string) ([]string, error) {
	// fs.Glob sorts the names. Unlike filepath.Glob, it takes no character of dataDir for a pattern.
	names, err := fs.Glob(os.DirFS(dataDir), DamagedLogPrefix+"*")
	if err != nil {
		return nil, err
	}

	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = filepath.Join(dataDir, name)
	}
	return dirs, nil
}
