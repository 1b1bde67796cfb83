package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// userDeleted removes what the user has as an owner of pins and as a reader, in steps. What others have of the user goes
// with the relations, which the graph ends afterwards (see [Inbox.relationChanged]).
func (f *Inbox) userDeleted() error {
	user := f.ev.User
	err := f.each(projections.AppendKey(nil, tagPin, user), true, func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return f.erasePin(user, id)
	})
	if err != nil {
		return err
	}
	for _, tag := range []projections.Tag{tagBoardDeleted, tagEntry} {
		prefix := projections.AppendKey(nil, tag, user)
		err := f.each(prefix, true, func(rest []byte) error {
			f.key = append(append(f.key[:0], prefix...), rest...)
			f.b.Delete(f.key)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.key = projections.AppendKey(f.key[:0], tagReader, user)
	f.b.Delete(f.key)
	if err := f.graph.Apply(*f.ev, f.b); err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagSource, user)
	f.b.Delete(f.key)
	prefix := projections.AppendKey(nil, tagBoardSource, user)
	return f.each(prefix, true, func(rest []byte) error {
		f.key = append(append(f.key[:0], prefix...), rest...)
		f.b.Delete(f.key)
		return nil
	})
}

func (f *Inbox) erasePin(owner, id string) error {
	p, err := f.readPin(owner, id)
	if err != nil {
		return err
	}
	p.row = pinfacts.Row{Settled: true}
	f.writeShadows(p, pinfacts.State{})
	if err := f.writeOutboxes(p, pinfacts.State{}); err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagPin, owner, id)
	f.b.Delete(f.key)
	return nil
}
