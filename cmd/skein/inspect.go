package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
)

type inspectCmd struct {
	Dir        string `arg:"" help:"The data directory of a service that is not running." type:"existingdir"`
	Projection string `help:"The store: graph, inbox, seen, counters or notifications." default:"graph"`
	Generation uint32 `help:"The generation of the store; 0 means the latest." default:"0"`
	User       string `help:"Only rows whose keys begin with this user, or with a board of this user."`
	Kind       string `help:"Only rows of this kind, which is the second word of each line: edge, following, board-counts, checkpoint, ..."`
	Limit      int    `help:"Stop after this many rows; 0 means never." default:"0"`
	JSON       bool   `help:"Print JSON, which also has the raw bytes of key and value."`
}

// Run prints the rows of a store.
func (c *inspectCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	store, err := c.openStore()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	view, err := store.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	return c.printRows(ctx, std, view)
}

func (c *inspectCmd) openStore() (*store.Store, error) {
	list := all.All(all.Settings{})
	i := slices.IndexFunc(list, func(p projections.Projection) bool { return p.Name() == c.Projection })
	if i < 0 {
		return nil, command.Usagef("there is no projection %q: the projections are graph, inbox, seen, counters and notifications", c.Projection)
	}

	// The argument may also be the directory of the stores itself, such as one that skein restore
	// has made.
	dir := c.Dir
	if _, err := os.Stat(filepath.Join(dir, service.StoresDir)); err == nil {
		dir = filepath.Join(dir, service.StoresDir)
	}
	store, err := store.Open(store.Options{
		Dir: dir, Generation: c.Generation, Projection: list[i], Partitioned: true, ReadOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w (the service must not be running)", err)
	}
	return store, nil
}

func (c *inspectCmd) printRows(ctx context.Context, std *command.Streams, view *projections.View) (err error) {
	out := bufio.NewWriter(std.Out)
	defer func() { err = errors.Join(err, out.Flush()) }()
	rows, err := c.openRows(view)
	if err != nil {
		return err
	}
	it := rows.it
	defer func() { err = errors.Join(err, it.Close()) }()

	corrupt := 0
	printed := 0
	for (c.Limit == 0 || printed < c.Limit) && rows.next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, corruption := all.Describe(c.Projection, it.Key(), it.Value())
		if corruption != nil { // of unknown kind, so --kind does not hide it
			corrupt++
			text = fmt.Sprintf("%x: %v", it.Key(), corruption)
		} else if c.Kind != "" && strings.Fields(text)[1] != c.Kind {
			continue
		}
		printed++
		if err := c.printRow(out, it.Key(), it.Value(), text, corruption != nil); err != nil {
			return err
		}
	}

	if corrupt > 0 {
		std.Sayf("%d rows cannot be read", corrupt)
		return command.ErrSilent
	}
	return nil
}

// openRows returns a cursor over all rows, or over those whose keys begin with the user of --user.
func (c *inspectCmd) openRows(view *projections.View) (*rowCursor, error) {
	if c.User == "" {
		return &rowCursor{it: view.Iter(nil, nil)}, nil
	}
	if err := events.ValidateID(c.User); err != nil {
		return nil, command.Usagef("--user %w", err)
	}

	id := events.AppendID(nil, c.User)
	shard := projections.AppendPrefix(nil, events.ShardOf(c.User), 0)[:2]
	if c.Projection == "seen" {
		// The keys of plays begin with their month instead of the shard, and have the shard after
		// the tag. So the rows of a user are in many places of the store.
		return &rowCursor{it: view.Iter(nil, nil), selected: [][]byte{id, append(bytes.Clone(shard), id...)}}, nil
	}
	return &rowCursor{it: view.Iter(shard, projections.PrefixEnd(shard)), selected: [][]byte{id}}, nil
}

// rowCursor walks over the rows of a store, or over some of them. A key has a prefix of three
// bytes, two of the shard or month and the tag, which is the kind of the row.
type rowCursor struct {
	it projections.Iterator
	// selected has what a key must have behind the prefix: one of these. If selected is nil, the
	// cursor walks over all rows.
	selected [][]byte
}

// next moves to the next selected row. It seeks past the rows between, so that one user of a large
// store is found quickly.
func (r *rowCursor) next() bool {
	found := r.it.Next()
	for found && r.selected != nil {
		isSelected, nextKey := r.match(r.it.Key())
		if isSelected || nextKey == nil {
			return isSelected
		}
		found = r.it.SeekGE(nextKey)
	}
	return found
}

// match reports whether a key is selected. If it is not, nextKey is the first key behind it that
// may be; nil means that there is none.
func (r *rowCursor) match(key []byte) (isSelected bool, nextKey []byte) {
	prefix := key[:min(3, len(key))]
	for _, selected := range r.selected {
		first := append(bytes.Clone(prefix), selected...)
		if bytes.HasPrefix(key, first) {
			return true, nil
		}
		if bytes.Compare(key, first) < 0 && (nextKey == nil || bytes.Compare(first, nextKey) < 0) {
			nextKey = first
		}
	}
	if nextKey == nil { // the key is behind all that are selected with this prefix
		nextKey = projections.PrefixEnd(prefix)
	}
	return false, nextKey
}

func (c *inspectCmd) printRow(out *bufio.Writer, key, value []byte, text string, isCorrupt bool) error {
	if !c.JSON {
		_, err := out.WriteString(text + "\n")
		return err
	}
	row := struct {
		Key     string `json:"key"`
		Value   string `json:"value"`
		Row     string `json:"row"`
		Corrupt bool   `json:"corrupt,omitempty"`
	}{hex.EncodeToString(key), hex.EncodeToString(value), text, isCorrupt}
	return json.NewEncoder(out).Encode(row)
}
