package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/replay/importer"
)

// The state directory of an import contains:
//
//	state.json       the type state, replaced atomically
//	sorted-NNNNNN    sorted facts and rejects, while the import reads
//	new-NNNN         the facts of run NNNN that no earlier run had, in the order of their offsets
//	publish-NNNN     how far run NNNN has published them: the state of [importer.RunRecords]
//	known-NNNN       all facts that were published, up to run NNNN
//	rejects.tsv      elements that the last run has rejected · refused.tsv: facts that the service has refused
const (
	stateName   = "state.json"
	rejectsName = "rejects.tsv"
	refusedName = "refused.tsv"
)

// stateVersion is the version of the state file. It must be raised when an older program could
// misread a newer directory.
const stateVersion = 1

// phase is the phase of a run: reading, publishing or done.
type phase string

const (
	phaseReading    phase = "reading"
	phasePublishing phase = "publishing"
	phaseDone       phase = "done"
)

// state is the content of state.json. An interrupted run needs it to continue, and the next run
// learns from it which facts are published.
type state struct {
	Version int   `json:"version"`
	Phase   phase `json:"phase"`
	// LogID identifies the log that has the known facts. Source is the source of the import in that
	// log, the same in all runs.
	LogID  string `json:"log_id"`
	Source string `json:"source"`
	// Run is the number of the run, from 1. StartedAt is when it began, which is also the time of
	// facts that have none.
	Run       int       `json:"run"`
	StartedAt time.Time `json:"started_at"`
	// Mapping is a hash of the mapping of this run. Server is the address of the Redis.
	Mapping string `json:"mapping"`
	Server  string `json:"server"`

	// While the run reads: Cursor is the cursor of the next step of the scan, valid while the
	// server has the run id RunID. Files are the sorted files with everything that was found before
	// it. NextFile is the number of the newest of them.
	RunID    string    `json:"run_id,omitempty"`
	Cursor   uint64    `json:"cursor,omitempty"`
	Files    []string  `json:"files,omitempty"`
	NextFile int       `json:"next_file"`
	Keys     KeyCounts `json:"keys"`
	// Found and Rejected are the numbers of distinct facts and rejects of this run. NotFound is the
	// number of known facts that it has not found.
	Found    uint64 `json:"found"`
	Rejected uint64 `json:"rejected"`
	NotFound uint64 `json:"gone"`
	// Reasons counts the rejected elements by reason.
	Reasons importer.ReasonCounts `json:"reasons,omitempty"`

	// While the run publishes: New is the file of new facts, NewSize their number, and Digest the
	// checksum of the file.
	New     string `json:"new,omitempty"`
	NewSize uint64 `json:"new_facts"`
	Digest  string `json:"digest,omitempty"`

	// Known is the file of all facts that are in the log, and KnownSize their number. Offset is the
	// highest offset of these facts.
	Known     string `json:"known,omitempty"`
	KnownSize uint64 `json:"known_facts"`
	Offset    uint64 `json:"offset"`
	// Position is a position of the log that contains all published facts.
	Position string `json:"position,omitempty"`
}

// Errors of the state directory.
var (
	// ErrState means that the state directory cannot be read, or belongs to something else.
	ErrState = errors.New("the state directory cannot be used")
	// ErrBusy means that another process imports with this state directory.
	ErrBusy = errors.New("another import is under way with this state directory")
)

// loadState reads the state file. It returns nil if there is none.
func loadState(dir string) (*state, error) {
	path := filepath.Join(dir, stateName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %s is no state of an import: %w", ErrState, path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%w: %s has version %d: this skein knows %d", ErrState, path, s.Version, stateVersion)
	}
	return &s, nil
}

// save writes the state file atomically.
func (s *state) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, stateName), append(data, '\n'))
}

// removeUnnamedFiles removes the files of an import that the state does not name, and incomplete
// files that a crash has left.
func (s *state) removeUnnamedFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		kind, _, numbered := strings.Cut(name, "-")
		isImportFile := numbered && slices.Contains([]string{"sorted", "new", "known", "publish"}, kind)
		isIncomplete := strings.HasSuffix(name, atomicfile.Suffix) &&
			(strings.HasPrefix(name, stateName) || strings.HasPrefix(name, rejectsName))
		if !isImportFile && !isIncomplete {
			continue
		}
		if name == s.New || name == s.Known || slices.Contains(s.Files, name) ||
			s.Phase == phasePublishing && name == s.publishStateName() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// publishStateName returns the name of the file in which the publishing phase of this run stores
// its state.
func (s *state) publishStateName() string { return fmt.Sprintf("publish-%04d", s.Run) }
