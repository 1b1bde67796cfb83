package snapshots

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
)

// Finalize is the command `skein finalize-upgrade`.
type Finalize struct {
	Data  string `help:"Data directory of the service, which must be stopped." default:"./skein-data" type:"existingdir" placeholder:"DIR"`
	Check bool   `help:"Change nothing; print which stores would be moved, and exit with code 1 if there are any."`
	JSON  bool   `help:"Print JSON."`
}

// Help is shown below the flags.
func (*Finalize) Help() string {
	return `A new release keeps the files of the stores in the format that they have, so that you can go back to the release before. This
command moves the files to the newest format that this release knows. Releases that do not know this format then refuse to open the stores. Run
the command when you will not go back any more, and in any case before you upgrade by two releases. It does not change the log.
docs/upgrading.md has the rules.`
}

// Run moves the stores to the newest format.
func (c *Finalize) Run(std *command.Streams) error {
	stores, err := store.FinalizeFormat(nil, filepath.Join(c.Data, service.StoresDir), all.All(all.Settings{}), c.Check)
	if errors.Is(err, projections.ErrInUse) {
		return fmt.Errorf("%w: stop the service first; nothing was changed", err)
	}
	if err != nil {
		return err
	}
	if len(stores) == 0 {
		return command.Usagef("--data %s: the directory has no stores", c.Data)
	}

	moved := 0
	t := command.NewTable(std.Out, "PROJECTION", "GENERATION", "FORMAT", "TO")
	for _, s := range stores {
		if s.From != s.To {
			moved++
		}
		t.Row(s.Name, fmt.Sprint(s.Generation), fmt.Sprint(s.From), fmt.Sprint(s.To))
	}
	if c.JSON {
		err = command.PrintPlainJSON(std.Out, stores)
	} else {
		err = t.Flush()
	}
	if err != nil {
		return err
	}

	if moved == 0 {
		std.Sayf("every store has the newest format already")
		return nil
	}
	if c.Check {
		std.Sayf("%d of %d stores would be moved", moved, len(stores))
		return command.ErrSilent
	}
	std.Sayf("%d of %d stores were moved: releases that do not know format %d refuse them from now on", moved, len(stores), stores[0].To)
	return nil
}
