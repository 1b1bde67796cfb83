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

// formatVersion is the version of the encoding of the rows of the runtime. The fingerprint is one
// of them, and it describes all other rows.
const formatVersion = 1

// The format of the files of a store is what the storage engine calls its format major version. A
// program that does not know a format cannot open the store, and no format can be moved back. So
// opening a store never changes its format: an operator can return to the previous release, which
// still finds stores that it can open. Only [FinalizeFormat] moves the format, once an operator has
// decided not to return.
const (
	// newFormat is the format of new stores. The previous release must know it.
	newFormat = pebble.FormatTableFormatV6
	// newestFormat is the newest format that this release opens, and the one to which
	// [FinalizeFormat] moves stores. It is a constant so that an update of the storage engine does
	// not raise it by itself.
	newestFormat = pebble.FormatValueSeparation
)

// FileFormat is the format of the files of a store.
type FileFormat struct {
	// Rows is the version of the rows of the runtime.
	Rows uint32 `json:"rows"`
	// Engine is the format major version of the storage engine.
	Engine uint32 `json:"engine"`
}

// Format returns the format of the stores that this program creates.
func Format() FileFormat { return FileFormat{Rows: formatVersion, Engine: uint32(newFormat)} }

// NewestFormat returns the newest format that this program opens.
func NewestFormat() FileFormat {
	return FileFormat{Rows: formatVersion, Engine: uint32(newestFormat)}
}

// FormatOf returns the format of the store in a directory, or of a copy that [Store.Checkpoint] has
// made. If there is no store, it returns the format of a new one. A nil fs means the disk. FormatOf
// fails with [projections.ErrFormat] if this program does not know the format.
func FormatOf(fs FS, dir string) (FileFormat, error) {
	if fs == nil {
		fs = vfs.Default
	}
	engine, err := engineFormat(fs, dir)
	return FileFormat{Rows: formatVersion, Engine: uint32(engine)}, err
}

// engineFormat returns the format of the store in a directory. If there is no store, or its
// creation was interrupted, engineFormat returns newFormat.
func engineFormat(fs FS, dir string) (pebble.FormatMajorVersion, error) {
	if _, err := fs.Stat(dir); err != nil {
		return newFormat, nil //nolint:nilerr // opening the store creates the directory, or returns the error of the disk
	}

	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		// Pebble has no error value for a format that it does not know.
		if strings.Contains(err.Error(), "unknown format major version") {
			err = fmt.Errorf("%w: %w", newFormatError("a format", newestFormat), err)
		}
		return 0, err
	}
	if !desc.Exists {
		return newFormat, nil
	}
	if desc.OptionsFilename == "" {
		// A power cut has interrupted the creation of the store. Pebble creates a store in its oldest
		// format, moves it on step by step, and then writes the file of options. Opening the store
		// ends the creation.
		return max(desc.FormatMajorVersion, newFormat), nil
	}
	return desc.FormatMajorVersion, checkFormat(desc.FormatMajorVersion, newestFormat)
}

// checkFormat fails with [projections.ErrFormat] if a format is newer than newest. Pebble may know
// the format, but skein was never tested with it.
func checkFormat(found, newest pebble.FormatMajorVersion) error {
	if found <= newest {
		return nil
	}
	return newFormatError(fmt.Sprintf("format %d", found), newest)
}

// newFormatError returns an error that wraps [projections.ErrFormat] and says what an operator can
// do. found names the format of the store.
func newFormatError(found string, newest pebble.FormatMajorVersion) error {
	return fmt.Errorf("%w: it has %s, this one knows up to %d (skein finalize-upgrade of that release has moved it): "+
		"go on with that release, or remove the store and have it built again from the log", projections.ErrFormat, found, newest)
}

// FormatChange is the result of [FinalizeFormat] for one generation.
type FormatChange struct {
	Name       string `json:"projection"`
	Generation uint32 `json:"generation"`
	// From and To are the formats before and after. They are equal if there was nothing to do.
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// FinalizeFormat moves the stores of the projections to newestFormat, all their generations. No
// process may have any of them open. With dryRun it only returns what it would do. A call that was
// interrupted or has failed may be repeated: stores that were moved stay moved.
func FinalizeFormat(fs FS, dir string, list []projections.Projection, dryRun bool) (done []FormatChange, err error) {
	defer recoverFatal(&err)
	if fs == nil {
		fs = vfs.Default
	}
	var opened []*pebble.DB
	defer func() {
		for _, db := range opened {
			err = errors.Join(err, db.Close())
		}
	}()

	// Open all stores before the first is moved, so that nothing is moved if a running process has
	// one of them open.
	for _, p := range list {
		for _, n := range disk.ListGenerations(fs, fs.PathJoin(dir, p.Name())) {
			storeDir := GenerationDir(Options{FS: fs, Dir: dir, Projection: p}, n)
			from, err := engineFormat(fs, storeDir)
			if err != nil {
				return nil, fmt.Errorf("the store of %s in %s: %w", p.Name(), storeDir, err)
			}
			done = append(done, FormatChange{Name: p.Name(), Generation: n, From: uint32(from), To: uint32(newestFormat)})
			if dryRun {
				continue
			}

			o := shortLivedOptions(fs, p)
			o.FormatMajorVersion = from
			o.ErrorIfNotExists = true
			db, err := openShortLived(storeDir, o)
			if err != nil {
				return nil, fmt.Errorf("open the store of %s in %s: %w", p.Name(), storeDir, wrapInUse(err))
			}
			opened = append(opened, db)
		}
	}

	for i, db := range opened {
		if err := db.RatchetFormatMajorVersion(newestFormat); err != nil {
			return done[:i], fmt.Errorf("move the store of %s to format %d: %w", done[i].Name, newestFormat, err)
		}
	}
	return slices.SortedFunc(slices.Values(done), func(a, b FormatChange) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Generation, b.Generation))
	}), nil
}
