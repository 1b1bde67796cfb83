package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
)

// Finalize is the command finalize-upgrade.
type Finalize struct {
	Data  string `help:"Data directory of a service that is not running." default:"./skein-data" type:"existingdir" placeholder:"DIR"`
	Check bool   `help:"Change nothing: tell which stores would be moved. Exit code 1 if there are any."`
	JSON  bool   `help:"Print JSON."`
}

// Help is shown below the flags.
func (*Finalize) Help() string {
	return `The files of the stores stay in the format that they have, whatever release opens them, so that the release before can be put
back. This moves them to the newest format of this release: after it, earlier ones refuse to open them. Run it when you will not go
back, and before the release after the next. The log is not touched. docs/upgrading.md has the rules.`
}

// Run moves the stores to the newest format.
func (c *Finalize) Run(std *command.Streams) error {
	done, err := store.FinalizeFormat(nil, filepath.Join(c.Data, service.StoresDir), all.All(all.Settings{}), c.Check)
	if errors.Is(err, projections.ErrInUse) {
		return fmt.Errorf("%w: stop the service first; nothing was changed", err)
	}
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return command.Usagef("--data %s: there are no stores in it", c.Data)
	}
	moved := 0
	t := command.NewTable(std.Out, "PROJECTION", "GENERATION", "FORMAT", "TO")
	for _, f := range done {
		if f.From != f.To {
			moved++
		}
		t.Row(f.Name, strconv.FormatUint(uint64(f.Generation), 10), strconv.FormatUint(uint64(f.From), 10),
			strconv.FormatUint(uint64(f.To), 10))
	}
	if c.JSON {
		err = json.NewEncoder(std.Out).Encode(done)
	} else {
		err = t.Flush()
	}
	switch {
	case err != nil:
		return err
	case moved == 0:
		std.Sayf("every store has the newest format already")
	case c.Check:
		std.Sayf("%d of %d stores would be moved", moved, len(done))
		return command.ErrSilent
	default:
		std.Sayf("%d of %d stores were moved: releases that do not know format %d refuse them from now on", moved, len(done), done[0].To)
	}
	return nil
}
