package notificationservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/notifications"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// stores are views of all stores that one answer needs.
type stores struct {
	notifications *views.Notifications
	inbox         *views.Inbox
	graph         *views.Graph
	// opened are the three views again.
	opened []*views.StoreView
	// position is the position that all views contain.
	position string
}

// openStores opens the views at positions that contain all demands. The caller must close them.
func (s *Service) openStores(ctx context.Context, info *call.Info, demands ...views.Demand) (*stores, error) {
	o := &stores{}
	if err := o.openViews(ctx, s, info, demands); err != nil {
		o.close()
		return nil, err
	}
	o.opened = []*views.StoreView{&o.notifications.StoreView, &o.inbox.StoreView, &o.graph.StoreView}
	o.position = views.OldestPosition(o.opened...)
	return o, nil
}

// openViews opens the three views. If one cannot be opened, those before it stay open.
func (o *stores) openViews(ctx context.Context, s *Service, info *call.Info, demands []views.Demand) (err error) {
	o.notifications, err = s.OpenNotifications(ctx, info, demands...)
	if err != nil {
		return err
	}
	o.inbox, err = s.OpenInbox(ctx, info, demands...)
	if err != nil {
		return err
	}
	o.graph, err = s.OpenGraph(ctx, info, demands...)
	return err
}

func (o *stores) close() {
	if o.notifications != nil {
		o.notifications.Close()
	}
	if o.inbox != nil {
		o.inbox.Close()
	}
	if o.graph != nil {
		o.graph.Close()
	}
}

// completeness says whether an answer from the views is exact. While notifications or pins are
// being rebuilt, some may be missing.
func (o *stores) completeness() skeinv1.FeedCompleteness {
	if o.notifications.Rebuilding || o.inbox.Rebuilding {
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_REBUILDING
	}
	return skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
}

var _ notifications.Sources = (*stores)(nil)

// Pin is part of [notifications.Sources]. A pin of another node that is not known yet counts as one
// that does not live; the query then runs again.
func (o *stores) Pin(owner, id string) (notifications.Pin, bool, error) {
	p, lives, err := o.inbox.Pin(owner, id)
	if err != nil || !lives {
		return notifications.Pin{}, false, err
	}
	return notifications.Pin{Item: p.Item, RepinOwner: p.RepinOwner, RepinPin: p.RepinPin}, true, nil
}

// Hides is part of [notifications.Sources].
func (o *stores) Hides(user, actor string) (bool, error) {
	relation, err := o.graph.Visibility(user, actor)
	return relation.Muted || relation.Blocked, err
}

// Followers is part of [notifications.Sources].
func (o *stores) Followers(ctx context.Context, user string, since events.Micros, n int) ([]notifications.Follower, error) {
	list := graph.List{Kind: graph.Followers, User: user}
	entries, _, err := o.graph.List(ctx, list, graph.CursorBefore(since), n)
	if err != nil {
		return nil, err
	}
	followers := make([]notifications.Follower, 0, len(entries))
	for i := range entries {
		followers = append(followers, notifications.Follower{User: entries[i].User, Since: entries[i].Since})
	}
	return followers, nil
}
