package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
)

// formatVersion is the version of the encoding of the row that tells the fingerprint, and so of all else.
const formatVersion = 1

// The format of the files of a store, which the storage engine calls its format major version, moves one way: a program that does
// not know a format cannot open the store. So an opening never moves it, and a release that is put back finds its stores as it
// left them. Only [FinalizeFormat] moves it, once an operator has decided not to return to the older release.
const (
	// newFormat is that of stores which this release makes: one that the release before it knows too.
	newFormat = pebble.FormatTableFormatV6
	// newestFormat is the newest that this release opens, and what [FinalizeFormat] moves stores to. It is pinned, so that a
	// newer storage engine alone does not raise it.
	newestFormat = pebble.FormatValueSeparation
)

// FileFormat is the version of the files of a store: of the rows of the runtime, and of the storage engine.
type FileFormat struct {
	Rows   uint32 `json:"rows"`
	Engine uint32 `json:"engine"`
}

// Format returns the format of the stores that this program makes.
func Format() FileFormat { return FileFormat{Rows: formatVersion, Engine: uint32(newFormat)} }

// NewestFormat returns the newest format of stores that this program opens.
func NewestFormat() FileFormat {
	return FileFormat{Rows: formatVersion, Engine: uint32(newestFormat)}
}

// FormatOf returns the format of the files in a directory, which may be a copy that a [Store.Checkpoint] has made; where there
// is no store, that of a new one. FS is nil for the disk.
func FormatOf(fs FS, dir string) (FileFormat, error) {
	if fs == nil {
		fs = vfs.Default
	}
	engine, err := engineFormat(fs, dir)
	return FileFormat{Rows: formatVersion, Engine: uint32(engine)}, err
}

// engineFormat returns the format that a store has, or is to be made with.
func engineFormat(fs FS, dir string) (pebble.FormatMajorVersion, error) {
	if _, err := fs.Stat(dir); err != nil {
		return newFormat, nil //nolint:nilerr // there is none yet: the opening makes it, or fails loudly
	}
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		if strings.Contains(err.Error(), "unknown format major version") {
			err = fmt.Errorf("%w: %w", tooNew("a format", newestFormat), err)
		}
		return 0, err
	}
	if !desc.Exists {
		return newFormat, nil
	}
	return desc.FormatMajorVersion, checkFormat(desc.FormatMajorVersion, newestFormat)
}

// checkFormat refuses a format beyond the newest that is known. The engine may know more: what skein does with such files was
// never tried.
func checkFormat(found, newest pebble.FormatMajorVersion) error {
	if found <= newest {
		return nil
	}
	return tooNew(fmt.Sprintf("format %d", found), newest)
}

func tooNew(found string, newest pebble.FormatMajorVersion) error {
	return fmt.Errorf("%w: it has %s, this one knows up to %d (skein finalize-upgrade of that release has moved it): "+
		"go on with that release, or remove the store and have it built again from the log", projections.ErrFormat, found, newest)
}

// Finalized is what [FinalizeFormat] did with one generation.
type Finalized struct {
	Name       string `json:"projection"`
	Generation uint32 `json:"generation"`
	// From and To are formats; equal: there was nothing to do.
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// FinalizeFormat moves every generation of the stores of projections to the newest format. No process may have them open. With look
// it only reports what it would do. It may be interrupted: what is moved stays so, and the next call does the rest.
func FinalizeFormat(fs FS, dir string, list []projections.Projection, look bool) (done []Finalized, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	var open []*pebble.DB
	defer func() {
		for _, db := range open {
			err = errors.Join(err, db.Close())
		}
	}()
	// First all are opened: a service that has one open refuses the whole.
	for _, p := range list {
		home := fs.PathJoin(dir, p.Name())
		for _, n := range disk.ListGenerations(fs, home) {
			found := GenerationDir(Options{FS: fs, Dir: dir, Projection: p}, n)
			from, err := engineFormat(fs, found)
			if err != nil {
				return nil, fmt.Errorf("the store of %s in %s: %w", p.Name(), found, err)
			}
			done = append(done, Finalized{Name: p.Name(), Generation: n, From: uint32(from), To: uint32(newestFormat)})
			if look {
				continue
			}
			db, err := pebble.Open(found, &pebble.Options{
				FS: fs, Merger: EngineMerger(p), FormatMajorVersion: from, DisableWAL: true, DisableAutomaticCompactions: true,
				ErrorIfNotExists: true, Logger: quietEngine{},
			})
			if err != nil {
				return nil, fmt.Errorf("open the store of %s in %s: %w", p.Name(), found, inUse(err))
			}
			open = append(open, db)
		}
	}
	for i, db := range open {
		if err := db.RatchetFormatMajorVersion(newestFormat); err != nil {
			return done[:i], fmt.Errorf("move the store of %s to format %d: %w", done[i].Name, newestFormat, err)
		}
	}
	return slices.SortedFunc(slices.Values(done), func(a, b Finalized) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Generation, b.Generation))
	}), nil
}

// quietEngine says nothing of a store that is open for a moment.
type quietEngine struct{}

func (quietEngine) Infof(string, ...any)  {}
func (quietEngine) Errorf(string, ...any) {}

// Fatalf does not return.
func (quietEngine) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
