package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/replay"
)

// recordVersion is the version of the format of the files. A program rejects files of any other
// version.
const recordVersion = 1

// fileSuffix ends the name of every file of an operation: ID.json.
const fileSuffix = ".json"

// record is what the file of an operation contains. The next process reads it after a restart.
type record struct {
	Version    int             `json:"version"`
	ID         string          `json:"operation_id"`
	Kind       Kind            `json:"kind"`
	Projection string          `json:"projection,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
	State      State           `json:"state"`
	// Cancelling is set once an operator has cancelled the operation. After a restart, such an
	// operation is not continued.
	Cancelling bool      `json:"cancelling,omitempty"`
	Created    time.Time `json:"created"`
	Ended      time.Time `json:"ended,omitzero"`
	// PhaseProgress is the last progress that was stored; a running operation stores its progress
	// only when the process stops.
	replay.PhaseProgress
	Error  string `json:"error,omitempty"`
	Report string `json:"report,omitempty"`
}

// encode returns the record as indented JSON, with a newline at the end.
func (r *record) encode() ([]byte, error) {
	r.Version = recordVersion
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// decodeRecord decodes a file and checks that the record is usable. Errors describe the content of
// the file and do not name the file.
func decodeRecord(data []byte) (r record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if r.Version != recordVersion {
		return r, fmt.Errorf("its version is %d, this program reads %d", r.Version, recordVersion)
	}

	switch r.State {
	case Pending, Running, Succeeded, Failed, Cancelled:
	default:
		return r, fmt.Errorf("it has no state %q", r.State)
	}

	if r.ID == "" || r.Kind == "" || r.Created.IsZero() {
		return r, errors.New("it lacks an id, a kind or a time")
	}

	if len(r.Args) > 0 {
		// The file is indented, and so are the arguments in it. Make them what the caller of Start
		// passed again.
		var args bytes.Buffer
		if err := json.Compact(&args, r.Args); err != nil {
			return r, err
		}
		r.Args = args.Bytes()
	}

	return r, nil
}

// recordDir is the path of the directory that holds the files.
type recordDir string

func (d recordDir) path(id string) string { return filepath.Join(string(d), id+fileSuffix) }

// write replaces the file of an operation atomically. When write returns, the file is safely on
// disk.
func (d recordDir) write(r *record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(d.path(r.ID), data)
}

func (d recordDir) remove(id string) error { return os.Remove(d.path(id)) }

// readAll returns the records of all files, oldest first, and an error for each file that does not
// contain a valid record. Such files are left in place, because a later version of the program may
// have written them. readAll creates the directory if it is missing.
func (d recordDir) readAll() (found []record, damaged []error, err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, nil, err
	}
	// ReadDir sorts by name. Names are ids, so the oldest operation comes first.
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, nil, err
	}

	for _, e := range entries {
		path := filepath.Join(string(d), e.Name())
		if strings.HasSuffix(e.Name(), atomicfile.Suffix) {
			// The process crashed while it wrote this file. The file that it was to replace is
			// still valid.
			if err := os.Remove(path); err != nil {
				return nil, nil, err
			}
			continue
		}

		id, ok := strings.CutSuffix(e.Name(), fileSuffix)
		if !ok {
			continue
		}

		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		r, err := decodeRecord(data)
		if err == nil && r.ID != id {
			err = fmt.Errorf("it is of operation %s", r.ID)
		}
		if err != nil {
			damaged = append(damaged, fmt.Errorf("%s is no operation: %w", path, err))
			continue
		}
		found = append(found, r)
	}
	return found, damaged, nil
}
