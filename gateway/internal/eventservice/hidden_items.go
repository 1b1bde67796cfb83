package eventservice

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// hiddenItemChanges has the live events of one call by which a user hides and shows items, in the
// order of the call.
type hiddenItemChanges struct {
	user   string
	events []*events.CheckedEvent
}

// refuseHidesOverLimit returns a rejection for each event of a call by which a user would hide more
// than [inbox.MaxHiddenItems] items. The limit is a guard and not exact: it is checked against the
// inbox as this process knows it, so concurrent calls may exceed it. Backfills record what has
// happened, and are always accepted. While the inbox cannot be read, all events are accepted.
func (s *Service) refuseHidesOverLimit(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, err error) {
	users := groupHiddenItems(evs)
	if len(users) == 0 || s.Inbox == nil {
		return nil, nil
	}
	r, err := s.OpenInbox(ctx, nil)
	if err != nil {
		// ctx.Err is nil unless the call itself has ended, so the events are accepted.
		return nil, ctx.Err()
	}
	defer r.Close()

	err = views.RunUntilResolved(ctx, func() error {
		refused = nil // of a run that lacked answers of other nodes
		for _, u := range users {
			rejections, err := u.refuseOverLimit(r)
			if err != nil {
				return err
			}
			refused = append(refused, rejections...)
		}
		return nil
	}, &r.StoreView)
	if err != nil {
		return nil, ctx.Err()
	}
	return refused, nil
}

// groupHiddenItems groups the live events that hide and show items by user. It leaves out users who
// only show items.
func groupHiddenItems(evs []events.CheckedEvent) (hiding []*hiddenItemChanges) {
	byUser := map[string]*hiddenItemChanges{}
	hides := map[string]bool{}
	for i := range evs {
		ev := &evs[i]
		if ev.Backfill || ev.Kind.Topic() != events.TopicHidden {
			continue
		}
		u := byUser[ev.User]
		if u == nil {
			u = &hiddenItemChanges{user: ev.User}
			byUser[ev.User] = u
		}
		u.events = append(u.events, ev)
		if ev.Kind == events.ItemHidden && !hides[ev.User] {
			hides[ev.User] = true
			hiding = append(hiding, u)
		}
	}
	return hiding
}

// refuseOverLimit checks the events in order, and returns the rejections of those that exceed the
// limit. A rejected event does not count for the events after it.
func (u *hiddenItemChanges) refuseOverLimit(r *views.Inbox) (refused []events.Rejection, err error) {
	// added is how many more items are hidden after the events so far, and isHiddenAfter whether an
	// item that they name is hidden then.
	added := int64(0)
	isHiddenAfter := map[string]bool{}
	for _, ev := range u.events {
		total, hidden, err := r.Hiding(u.user, ev.Item)
		if err != nil {
			return nil, err
		}
		if changed, known := isHiddenAfter[ev.Item]; known {
			hidden = changed
		}

		hides := ev.Kind == events.ItemHidden
		switch {
		case hides && !hidden && total+added >= inbox.MaxHiddenItems:
			refused = append(refused, events.Rejection{
				Index: ev.Index, Reason: skeinv1.Reason_REASON_HIDDEN_ITEM_LIMIT, Field: ev.Kind.String(),
				Message: fmt.Sprintf("%s is beyond the %d items that one may hide", ev.Kind, inbox.MaxHiddenItems),
			})
			continue
		case hides && !hidden:
			added++
		case !hides && hidden:
			added--
		}
		isHiddenAfter[ev.Item] = hides
	}
	return refused, nil
}
