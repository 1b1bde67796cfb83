package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/skein-feed/skein/events/atomicfile"
)

// stateVersion is the version of the state file. It is raised when an older skein could misread a newer file.
const stateVersion = 1

// state is what an import must know of itself to continue after it was interrupted.
type state struct {
	Version int  `json:"version"`
	Kind    Kind `json:"kind"`
	// File and Digest are the name and the hash of what is imported.
	File   string `json:"file"`
	Digest string `json:"digest"`
	// Shape says which column is taken for what, First whether only first records of a pair count.
	Shape string `json:"shape"`
	First bool   `json:"first"`
	// LogID names the log that took the records.
	LogID  string `json:"log_id"`
	Source string `json:"source"`
	// StartedAt is when the import began: the time of records without one, also when it is run again.
	StartedAt time.Time `json:"started_at"`
	// RecordsDone is the number of the last record such that the log has acknowledged it and all before it.
	RecordsDone uint64 `json:"rows_done"`
	// What became of these records, and why some were rejected.
	Totals
	Reasons Reasons `json:"reasons,omitempty"`
	// Complete reports that there are no more records.
	Complete bool `json:"complete"`
	// Position is that of the last acknowledged call.
	Position string `json:"position"`
}

// Totals count what became of records.
type Totals struct {
	// Events is how many events the log acknowledged.
	Events uint64 `json:"events"`
	// Rejected records stand in the rejects file.
	Rejected uint64 `json:"rejected"`
	// Skipped records repeat a pair, where only the first one counts.
	Skipped uint64 `json:"skipped"`
	// Clamped records have a time after the import's start and got that instead.
	Clamped uint64 `json:"clamped"`
	// Early records have a number before 1990 as their time, which may be none.
	Early uint64 `json:"early"`
}

// ErrState is returned when the state file belongs to another import.
var ErrState = errors.New("the state file belongs to another import")

func loadState(path string) (*state, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s is no state of an import: %w", path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s has version %d: this skein knows %d", path, s.Version, stateVersion)
	}
	return &s, nil
}

func (s *state) save(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// resume makes old, the state found, continue as wanted, the state of a new import of the same options.
func (s *state) resume(wanted *state, path string) (notice string, err error) {
	for _, d := range []struct{ what, was, is string }{
		{"kind", string(s.Kind), string(wanted.Kind)},
		{"content of the file", s.Digest, wanted.Digest},
		{"columns", s.Shape, wanted.Shape},
		{"choice of --first", fmt.Sprint(s.First), fmt.Sprint(wanted.First)},
		{"source", s.Source, wanted.Source},
	} {
		if d.was != d.is {
			return "", fmt.Errorf("%w: %s: the %s was %q and is %q now; --restart begins a new import",
				ErrState, path, d.what, d.was, d.is)
		}
	}
	began := s.StartedAt.Format(time.DateTime)
	switch {
	case s.LogID != wanted.LogID:
		notice = "the import that began " + began + " went to another log: all rows are sent to this one"
	case s.Complete:
		notice = "the file was imported before, beginning " + began +
			": all rows are sent again, and the log ignores what it has"
	default:
		return fmt.Sprintf("going on after row %d with the import that began %s", s.RecordsDone, began), nil
	}
	s.LogID, s.RecordsDone, s.Totals, s.Reasons, s.Complete, s.Position = wanted.LogID, 0, Totals{}, nil, false, ""
	return notice, nil
}
