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

// version of the files.
const version = 1

const fileSuffix = ".json"

// record is the content of the file of an operation, ID.json, from which a restart knows of it.
type record struct {
	Version    int             `json:"version"`
	ID         string          `json:"operation_id"`
	Kind       Kind            `json:"kind"`
	Projection string          `json:"projection,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
	State      State           `json:"state"`
	// Cancelling is set once an operator has cancelled the operation. A restart does not continue it then.
	Cancelling bool      `json:"cancelling,omitempty"`
	Created    time.Time `json:"created"`
	Ended      time.Time `json:"ended,omitzero"`
	replay.PhaseProgress
	Error  string `json:"error,omitempty"`
	Report string `json:"report,omitempty"`
}

func (r *record) encode() ([]byte, error) {
	r.Version = version
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

func decodeRecord(data []byte) (r record, err error) {
	if err = json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if r.Version != version {
		return r, fmt.Errorf("its version is %d, this program reads %d", r.Version, version)
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
		var args bytes.Buffer // the file has indented them
		if err := json.Compact(&args, r.Args); err != nil {
			return r, err
		}
		r.Args = args.Bytes()
	}
	return r, nil
}

// folder is the directory of the files.
type folder string

func (f folder) path(id string) string { return filepath.Join(string(f), id+fileSuffix) }

// write replaces the file of an operation, atomically. The file is on disk when write returns.
func (f folder) write(r *record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(f.path(r.ID), data)
}

func (f folder) remove(id string) error { return os.Remove(f.path(id)) }

// read returns the operations, the oldest first, and an error for each file that cannot be read as one. Such files are left in place,
// because they may be of a later version.
func (f folder) read() (found []record, damaged []error, err error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(string(f)) // by name, which is by time
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(string(f), e.Name())
		if strings.HasSuffix(e.Name(), atomicfile.Suffix) {
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
