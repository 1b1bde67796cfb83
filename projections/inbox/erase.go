package inbox

import (
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// eraseUser deletes the rows of a user as an owner of pins and as a reader, in steps. Pull rows
// that name the user are deleted when the graph ends the relations of the user (see
// [Inbox.applyRelationChange]).
func (f *Inbox) eraseUser() error {
	user := f.ev.User
	if f.batch.Holds(user) {
		if err := f.eraseHomeRows(user); err != nil {
			return err
		}
	}

	// Re-pins by other users stay, without the name of the user, in every partition.
	err := f.batch.EraseRows(projections.AppendKey(nil, tagRepinOf, user), func(rest []byte) error {
		owner, id, err := cutRepinOfKey(rest)
		if err != nil {
			return err
		}
		return f.forgetRepinOwner(owner, id, user)
	})
	if err != nil {
		return err
	}

	// Ending the relations of the user reads where the user is pulled, so these rows are deleted
	// last.
	if err := f.graph.Apply(*f.ev, f.batch); err != nil {
		return err
	}
	return f.deleteRows(projections.AppendKey(nil, tagPulledOwner, user))
}

// eraseHomeRows deletes the rows whose home is the user: pins, deletions of boards, the read marker
// and hidden items.
func (f *Inbox) eraseHomeRows(user string) error {
	err := f.batch.EraseRows(projections.AppendKey(nil, tagPin, user), func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return f.erasePin(user, id)
	})
	if err != nil {
		return err
	}
	if err := f.deleteRows(projections.AppendKey(nil, tagBoardDeleted, user)); err != nil {
		return err
	}
	f.dropInbox(events.AppendID(nil, user))
	f.key = projections.AppendKey(f.key[:0], tagReadMarker, user)
	f.batch.Delete(f.key)
	return f.hidden.Erase(user, f.batch)
}

// deleteRows deletes all rows with a prefix, in steps.
func (f *Inbox) deleteRows(prefix []byte) error {
	return f.batch.EraseRows(prefix, func(rest []byte) error {
		f.key = append(append(f.key[:0], prefix...), rest...)
		f.batch.Delete(f.key)
		return nil
	})
}

// forgetRepinOwner removes the name of a deleted user from the facts of a pin that repeats a pin of
// that user. Pages then leave the pin out.
func (f *Inbox) forgetRepinOwner(owner, id, deleted string) error {
	p, err := f.readPin(owner, id)
	if err != nil {
		return err
	}
	if !slices.Contains(p.repinOwnersBefore, deleted) {
		return errRow("re-pin of another user", []byte(id))
	}
	p.row.ForgetRepinOwner(deleted)
	return f.writePin(p)
}

// erasePin removes all rows of a pin.
func (f *Inbox) erasePin(owner, id string) error {
	p, err := f.readPin(owner, id)
	if err != nil {
		return err
	}

	// A pin without facts does not live and has no possible boards, so everything that followed from
	// the facts is removed.
	p.row = pinstore.Row{HistoryClosed: true}
	f.writePossibleBoards(p, pinstore.State{})
	f.writeRepinOwners(p)
	if err := f.writeOutboxes(p, pinstore.State{}); err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagPin, owner, id)
	f.batch.Delete(f.key)
	return nil
}
