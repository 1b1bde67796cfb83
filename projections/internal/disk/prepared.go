package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/skein-feed/skein/projections"
)

const (
	// PreparedDir is the directory, beside the generations of a projection, in which a process with
	// another version of the program prepares a generation. It is a directory of stores of its own.
	PreparedDir = "prepared"
	// preparedFile is in the directory of a generation that was prepared completely and is not in
	// use yet.
	preparedFile = "PREPARED"
	// preparedVersion is the version of the format of the file.
	preparedVersion = 1
)

// Prepared says what a prepared generation was built from.
type Prepared struct {
	Version int `json:"version"`
	// Fingerprint is that of the store, as [projections.Fingerprint.String] has it.
	Fingerprint string `json:"fingerprint"`
	// Log is the hexadecimal id of the log, and Epoch the epoch that was read. After an erasure or
	// a restored log, the epoch is another one, and the generation must not be used.
	Log   string `json:"log"`
	Epoch uint32 `json:"epoch"`
}

// ReadPrepared reads the file in the directory of a generation, and reports whether there is one. A
// file that cannot be decoded is [projections.ErrCorrupt].
func ReadPrepared(fs FS, dir string) (p Prepared, found bool, err error) {
	name := fs.PathJoin(dir, preparedFile)
	data, err := ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return Prepared{}, true, fmt.Errorf("%w: %s: %w", projections.ErrCorrupt, name, err)
	}
	if p.Version != preparedVersion {
		return Prepared{}, true, fmt.Errorf("%s: version %d, this program knows %d", name, p.Version, preparedVersion)
	}
	return p, true, nil
}

// WritePrepared writes the file. The files of the generation must be synced before.
func WritePrepared(fs FS, dir string, p Prepared) error {
	p.Version = preparedVersion
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// The rename makes the file appear with its content.
	name := fs.PathJoin(dir, preparedFile)
	if err := WriteFile(fs, name+".new", append(data, '\n')); err != nil {
		return err
	}
	if err := fs.Rename(name+".new", name); err != nil {
		return err
	}
	return SyncDir(fs, dir)
}

// RemovePrepared removes the file: the generation is in use. It is no error that there is none.
func RemovePrepared(fs FS, dir string) error {
	err := fs.Remove(fs.PathJoin(dir, preparedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
