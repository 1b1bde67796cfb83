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
	Projection string `help:"Which store: graph, inbox, seen or counters." default:"graph"`
	Generation uint32 `help:"Which build; 0 means the latest." default:"0"`
	User       string `help:"Only rows whose keys begin with this user, or with a board of this user."`
	Kind       string `help:"Only rows of this kind, the second word of each line: edge, following, board-counts, checkpoint, ..."`
	Limit      int    `help:"Stop after so many rows; 0 means never." default:"0"`
	JSON       bool   `help:"Print JSON with the raw bytes of key and value besides."`
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
		return nil, command.Usagef("there is no projection %q", c.Projection)
	}
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
	for n := 0; (c.Limit == 0 || n < c.Limit) && rows.next(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, derr := all.Describe(c.Projection, it.Key(), it.Value())
		if derr != nil {
			corrupt++
			text = fmt.Sprintf("%x: %v", it.Key(), derr)
		}
		if derr == nil && c.Kind != "" && strings.Fields(text)[1] != c.Kind {
			continue
		}
		n++
		if err := c.printRow(out, it.Key(), it.Value(), text, derr); err != nil {
			return err
		}
	}
	if corrupt > 0 {
		std.Sayf("%d rows cannot be read", corrupt)
		return command.ErrSilent
	}
	return nil
}

// openRows returns an iterator over all rows, or over those whose keys begin with the user.
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
		// Rows of a month begin with the month, and have the shard after the tag.
		return &rowCursor{it: view.Iter(nil, nil), after: [][]byte{id, append(bytes.Clone(shard), id...)}}, nil
	}
	return &rowCursor{it: view.Iter(shard, projections.PrefixEnd(shard)), after: [][]byte{id}}, nil
}

// rowCursor walks over rows.
type rowCursor struct {
	it projections.Iterator
	// after selects keys whose bytes after the first three, which end with the tag, begin with one of these; nil selects all keys.
	after [][]byte
}

// next moves to the next wanted row. It seeks past the rows between, so that one user of a large store is found quickly.
func (r *rowCursor) next() bool {
	ok := r.it.Next()
	for ok && r.after != nil {
		here, from := r.match(r.it.Key())
		if here || from == nil {
			return here
		}
		ok = r.it.SeekGE(from)
	}
	return ok
}

// match reports whether a key is wanted. If it is not, from is the first later key that may be; nil means there is none.
func (r *rowCursor) match(key []byte) (here bool, from []byte) {
	prefix := key[:min(3, len(key))]
	for _, after := range r.after {
		begin := append(bytes.Clone(prefix), after...)
		switch {
		case bytes.HasPrefix(key, begin):
			return true, nil
		case bytes.Compare(key, begin) < 0 && (from == nil || bytes.Compare(begin, from) < 0):
			from = begin
		}
	}
	if from == nil {
		from = projections.PrefixEnd(prefix)
	}
	return false, from
}

func (c *inspectCmd) printRow(out *bufio.Writer, key, value []byte, text string, corrupt error) error {
	if !c.JSON {
		_, err := out.WriteString(text + "\n")
		return err
	}
	row := struct {
		Key     string `json:"key"`
		Value   string `json:"value"`
		Row     string `json:"row"`
		Corrupt bool   `json:"corrupt,omitempty"`
	}{hex.EncodeToString(key), hex.EncodeToString(value), text, corrupt != nil}
	return json.NewEncoder(out).Encode(row)
}
