// Package notificationservice answers NotificationService: pages of a user's notifications in
// groups (read_notifications.go), how many groups the user has not seen (count_notifications.go),
// and a stream of that number (watch_notifications.go).
//
// The notifications projection has reactions and re-pins; the graph has follows, mutes and blocks,
// and the inbox has pins. All rows that a call needs are at the home of the user, except the
// re-pins of others (sources.go).
package notificationservice

import (
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/views"
)

// Service answers NotificationService.
type Service struct {
	*views.Views
	// Watchers wakes those who watch notifications.
	Watchers *feedwatch.Watchers
}

// New answers from the notifications, the graph and the inbox, which the views must have.
func New(v *views.Views) *Service {
	return &Service{
		Views:    v,
		Watchers: feedwatch.NewForNotifications(v.Log, v.Hub, v.Notifications.Live, v.Inbox.Live, v.Graph.Live),
	}
}
