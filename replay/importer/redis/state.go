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

// The state directory of an import:
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

// stateVersion is the version of the state file. It is raised when an older program could misread a newer directory.
const stateVersion = 1

// phase is the phase of a run: reading, publishing or done.
type phase string

const (
	phaseReading    phase = "reading"
	phasePublishing phase = "publishing"
	phaseDone       phase = "done"
)

// state is the content of state.json. With it an interrupted run continues, and the next run knows the facts that are published.
type state struct {
	Version int   `json:"version"`
	Phase   phase `json:"phase"`
	// LogID identifies the log that has the known facts, Source the import in it, in all runs.
	LogID  string `json:"log_id"`
	Source string `json:"source"`
	// Run is the number of the run, from 1. StartedAt is when it began, which is the time of facts without one.
	Run       int       `json:"run"`
	StartedAt time.Time `json:"started_at"`
	// Mapping is a hash of the mapping of this run, Server the address of the Redis.
	Mapping string `json:"mapping"`
	Server  string `json:"server"`

	// In the phase of reading: the cursor of the next step of the scan, valid in the run of the server that RunID names, and the sorted
	// files with everything found before it. NextFile is the number of the next file.
	RunID    string    `json:"run_id,omitempty"`
	Cursor   uint64    `json:"cursor,omitempty"`
	Files    []string  `json:"files,omitempty"`
	NextFile int       `json:"next_file"`
	Keys     KeyCounts `json:"keys"`
	// Found and Rejected are the numbers of distinct facts and rejects of this run, Gone the number of known facts that it has not found.
	Found    uint64 `json:"found"`
	Rejected uint64 `json:"rejected"`
	Gone     uint64 `json:"gone"`
	// Reasons are the reasons for the rejects.
	Reasons importer.Reasons `json:"reasons,omitempty"`

	// In the phase of publishing: the file of new facts, their number and checksum.
	New     string `json:"new,omitempty"`
	NewSize uint64 `json:"new_facts"`
	Digest  string `json:"digest,omitempty"`

	// Known is the file of all facts that are in the log, Offset their highest offset.
	Known     string `json:"known,omitempty"`
	KnownSize uint64 `json:"known_facts"`
	Offset    uint64 `json:"offset"`
	// Position is a position that contains all published facts.
	Position string `json:"position,omitempty"`
}

// Errors of the state directory.
var (
	// ErrState is returned when the state directory belongs to something else.
	ErrState = errors.New("the state directory cannot be used")
	// ErrBusy is returned when another process imports with this state directory.
	ErrBusy = errors.New("another import is under way with this state directory")
)

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

func (s *state) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, stateName), append(data, '\n'))
}

// sweep removes the files that the state does not name, and incomplete files that a crash has left.
func (s *state) sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		kind, _, numbered := strings.Cut(name, "-")
		ours := numbered && slices.Contains([]string{"sorted", "new", "known", "publish"}, kind)
		half := strings.HasSuffix(name, atomicfile.Suffix) && (strings.HasPrefix(name, stateName) || strings.HasPrefix(name, rejectsName))
		if !ours && !half {
			continue
		}
		if name == s.New || name == s.Known || slices.Contains(s.Files, name) ||
			s.Phase == phasePublishing && name == s.publishState() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) publishState() string { return fmt.Sprintf("publish-%04d", s.Run) }
