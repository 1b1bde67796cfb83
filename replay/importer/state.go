package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/skein-feed/skein/events/atomicfile"
)

// stateVersion is the version of the state file. It must be raised when an older program could
// misread a newer file.
const stateVersion = 1

// state is the content of the state file. An interrupted import needs it to continue.
type state struct {
	Version int  `json:"version"`
	Kind    Kind `json:"kind"`
	// File and Digest are the name and the hash of the imported file.
	File   string `json:"file"`
	Digest string `json:"digest"`
	// Shape describes the columns. First says whether only the first record of each subject is
	// imported.
	Shape string `json:"shape"`
	First bool   `json:"first"`
	// LogID identifies the log to which the records were published.
	LogID  string `json:"log_id"`
	Source string `json:"source"`
	// StartedAt is when the first run began. Records without a time have it as their time, in later
	// runs, too.
	StartedAt time.Time `json:"started_at"`
	// RecordsDone is the number of a record. That record and all before it were acknowledged by the
	// log or rejected.
	RecordsDone uint64 `json:"rows_done"`
	// Totals counts the records up to RecordsDone. Reasons counts the rejected ones by reason.
	Totals
	Reasons ReasonCounts `json:"reasons,omitempty"`
	// Repeated is set if an earlier run has sent all records to this log, so that it ignores them
	// now.
	Repeated bool `json:"repeated,omitempty"`
	// Complete is set when all records are done.
	Complete bool `json:"complete"`
	// Position is the position of the last acknowledged call.
	Position string `json:"position"`
}

// Totals counts the outcomes of records.
type Totals struct {
	// Events counts the events that the log has accepted.
	Events uint64 `json:"events"`
	// Ignored counts the events that have changed nothing, because the log had an event of the same
	// source and kind with their offset or a higher one.
	Ignored uint64 `json:"ignored"`
	// Rejected counts the records in the file of rejects.
	Rejected uint64 `json:"rejected"`
	// Skipped counts the records that repeat a subject, if only the first record of each subject is
	// imported.
	Skipped uint64 `json:"skipped"`
	// Clamped counts the records with a time after the start of the import. They got the start as
	// their time.
	Clamped uint64 `json:"clamped"`
}

// ErrState means that the state file belongs to another import.
var ErrState = errors.New("the state file belongs to another import")

// loadState reads the state file. It returns nil if there is none.
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

// save writes the state file atomically.
func (s *state) save(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// prepareResume checks that s, the state in the file, belongs to the import whose new state would
// be wanted, and prepares s for its next run. It returns a notice for people, or [ErrState].
func (s *state) prepareResume(wanted *state, path string) (notice string, err error) {
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

	// All records are sent again. The log has them already if it is the same one and the import was
	// complete.
	s.Repeated = s.Complete && s.LogID == wanted.LogID
	s.LogID = wanted.LogID
	s.RecordsDone = 0
	s.Totals = Totals{}
	s.Reasons = nil
	s.Complete = false
	s.Position = ""
	return notice, nil
}
