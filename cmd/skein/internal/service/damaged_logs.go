package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DamagedLogPrefix begins the names of the directories, below the data directory, to which
// `skein replay archive restore` moves damaged logs. The time of the move follows.
const DamagedLogPrefix = LogDir + "-damaged-"

// DamagedLogs returns the directories of the damaged logs below a data directory, the oldest first.
// They stay there until an operator removes them. A data directory that does not exist has none.
func DamagedLogs(dataDir string) ([]string, error) {
	entries, err := os.ReadDir(dataDir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	var dirs []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), DamagedLogPrefix) {
			dirs = append(dirs, filepath.Join(dataDir, entry.Name()))
		}
	}
	return dirs, nil
}
