package stores

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/notifications"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// notification tells its recipient what another user, the actor, did: reacted to a pin of the
// recipient, re-pinned it, or followed the recipient.
type notification struct {
	at               events.Micros
	kind             notifications.Kind
	recipient, actor uint32
	// pin is the number of the recipient's pin, unless the kind is Followed. repin is the number of
	// the actor's pin if the kind is Repinned.
	pin, repin uint32
}

// pinID returns the id of a pin. The pin shows an item of the same id.
func pinID(pin uint32) string { return strconv.FormatUint(workload.FirstID+uint64(pin), 10) }

// pinMessage returns the name of a pin.
func pinMessage(owner, pin uint32) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: workload.UserID(owner), PinId: pinID(pin)}
}

// event returns the event that causes the notification.
func (n *notification) event() *skeinv1.Event {
	switch n.kind {
	case notifications.Followed:
		return workload.UserFollowed(n.actor, workload.UserID(n.recipient))
	case notifications.Repinned:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: pinMessage(n.actor, n.repin), ItemId: pinID(n.pin), RepinOf: pinMessage(n.recipient, n.pin),
		}}}
	default:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{
			UserId: workload.UserID(n.actor), ItemId: pinID(n.pin), Pin: pinMessage(n.recipient, n.pin),
		}}}
	}
}

// asListed returns the notification as a list of the recipient has it.
func (n *notification) asListed() listedNotification {
	l := listedNotification{kind: n.kind, actor: workload.UserID(n.actor), at: n.at}
	if n.kind != notifications.Followed {
		l.pin = pinID(n.pin)
	}
	switch n.kind {
	case notifications.Reacted:
		l.detail = like
	case notifications.Repinned:
		l.detail = pinID(n.repin)
	}
	return l
}

// like is the kind of all reactions.
const like = "like"

// listedNotification is a notification as it stands in a list of its recipient. detail is the kind
// of the reaction, or the id of the re-pin.
type listedNotification struct {
	kind               notifications.Kind
	pin, actor, detail string
	at                 events.Micros
}

// notificationGroup is a group in the answers of skein and of Redis. See [notifications.Group].
type notificationGroup struct {
	ID         string
	Newest     events.Micros
	Actors     []groupActor
	ActorCount int
	Unread     bool
}

// groupActor is an actor of a group, with the newest notification of the group that the actor
// caused.
type groupActor struct {
	User, Detail string
	Since        events.Micros
}

// groupNotifications returns the groups of a list of notifications, which it sorts, newest first:
// one for each kind, pin and day in UTC. The times of the notifications differ.
func groupNotifications(list []listedNotification) []notificationGroup {
	slices.SortFunc(list, func(x, y listedNotification) int { return cmp.Compare(y.at, x.at) })

	type groupKey struct {
		day  events.Micros
		kind notifications.Kind
		pin  string
	}
	type builder struct {
		group  int
		actors map[string]bool
	}
	var groups []notificationGroup
	builders := make(map[groupKey]*builder)
	for i := range list {
		n := &list[i]
		key := groupKey{n.at / day, n.kind, n.pin}
		b := builders[key]
		if b == nil {
			// The list is sorted, so this is the newest notification of the group, and the groups
			// come in their order.
			b = &builder{group: len(groups), actors: make(map[string]bool)}
			builders[key] = b
			groups = append(groups, notificationGroup{ID: groupID(n), Newest: n.at})
		}
		if b.actors[n.actor] {
			continue
		}
		b.actors[n.actor] = true
		g := &groups[b.group]
		g.ActorCount++
		if len(g.Actors) < notifications.MaxActors {
			g.Actors = append(g.Actors, groupActor{n.actor, n.detail, n.at})
		}
	}
	return groups
}

// groupID returns the id of the group of a notification, which is the one that skein gives it.
func groupID(n *listedNotification) string {
	letter := map[notifications.Kind]string{notifications.Followed: "f", notifications.Reacted: "r", notifications.Repinned: "p"}[n.kind]
	id := letter + strconv.FormatInt(int64(n.at/day), 10)
	if n.kind == notifications.Followed {
		return id
	}
	return id + ":" + n.pin
}

const (
	// pinsPerRecipient is how many pins a recipient has.
	pinsPerRecipient = 40
	// notificationsPerEnvelope is how many notifications are in an envelope.
	notificationsPerEnvelope = 100
	// minute is the time between two envelopes. The events of an envelope are a microsecond apart,
	// as in every log.
	minute = events.Micros(60_000_000)
	// recipientSkew is the exponent of the power law of notifications over recipients. It is
	// greater than that of followers, so that many notifications go to users who have more than are
	// kept.
	recipientSkew = 2.0 / 3
)

// notificationRuns returns the notifications of some measurements of the fold, n each, in the order
// of time. The recipients are the first users, drawn by a power law, and the actors as many other
// users. A tenth are re-pins, and no reaction is a repetition. notificationRuns fails if that needs
// more actors.
func notificationRuns(runs, n, recipients int) ([][]notification, error) {
	r := rand.New(rand.NewPCG(23, 0))
	received := make([]int, recipients)
	all := make([]notification, runs*n)
	for i := range all {
		recipient := workload.PowerLaw(r, recipients, recipientSkew)

		// Each notification of a recipient has the next pin and another actor. The factor is a
		// prime, which scatters the actors.
		count := received[recipient]
		received[recipient]++
		if count == recipients {
			return nil, fmt.Errorf("%d notifications for %d users: one receives more than there are actors: raise --readers or lower --plays",
				runs*n, recipients)
		}
		all[i] = notification{
			at:        monthStart(0) + minute*events.Micros(i/notificationsPerEnvelope) + events.Micros(i%notificationsPerEnvelope),
			kind:      notifications.Reacted,
			recipient: uint32(recipient),
			actor:     uint32(recipients + (31*recipient+count)*7_368_787%recipients),
			pin:       uint32(recipient*pinsPerRecipient + count%pinsPerRecipient),
		}
		if i%10 == 0 {
			all[i].kind, all[i].repin = notifications.Repinned, uint32(i)
		}
	}
	return slices.Collect(slices.Chunk(all, n)), nil
}

// encodeNotifications makes envelopes of the events of notifications.
func encodeNotifications(list []notification) ([]encodedEnvelope, error) {
	var log []encodedEnvelope
	for chunk := range slices.Chunk(list, notificationsPerEnvelope) {
		evs := make([]*skeinv1.Event, len(chunk))
		for i := range chunk {
			evs[i] = chunk[i].event()
		}
		env, err := encodeEnvelope(chunk[0].at, evs)
		if err != nil {
			return nil, err
		}
		log = append(log, env)
	}
	return log, nil
}

// notifiedClass is a class of users whose badges and pages are measured. Each received
// notificationsPerUser notifications, evenly over some days. The notifications of a day are about
// the same few pins, so all days together are about all of a user's pins.
type notifiedClass struct {
	id, title string
	// users are the numbers of the users.
	users []uint32
	begin events.Micros
	days  int
}

const (
	// notificationsPerUser is how many notifications each user of a class received.
	notificationsPerUser = 1000
	// actorsPerUser is how many actors the notifications of a user have, and firstActor the number
	// of the first actor of all users.
	actorsPerUser = 500
	firstActor    = 1 << 20
)

// notifiedClasses returns the classes, of n users each. Their notifications follow each other in
// the log.
func notifiedClasses(n int) []notifiedClass {
	classes := []notifiedClass{
		{id: "notifications-page", title: "over 8 days", begin: monthStart(0), days: 8},
		{id: "notifications-page-day", title: "of one day", begin: monthStart(0) + 10*day, days: 1},
	}
	for i := range classes {
		for user := range n {
			classes[i].users = append(classes[i].users, uint32(i*n+user))
		}
	}
	return classes
}

// notificationsOf returns the notifications of a user of the class, in the order of time: of 20,
// one is a follow, four are re-pins, and the others are reactions. All are different facts.
func (c *notifiedClass) notificationsOf(user uint32) []notification {
	rowsOfDay := notificationsPerUser / c.days
	pinsOfDay := pinsPerRecipient / c.days
	// All users of the class receive their next notification with the same envelope, whose events
	// are a microsecond apart.
	begin := c.begin + events.Micros(user-c.users[0])
	list := make([]notification, notificationsPerUser)
	for i := range list {
		dayOfRow, slot := i/rowsOfDay, i%rowsOfDay
		pin := dayOfRow*pinsOfDay + (i/20+i)%pinsOfDay
		n := notification{
			at:        begin + day*events.Micros(dayOfRow) + day/events.Micros(rowsOfDay)*events.Micros(slot),
			kind:      notifications.Reacted,
			recipient: user,
			actor:     firstActor + 97*user + uint32(i*7919%actorsPerUser),
			pin:       user*pinsPerRecipient + uint32(pin),
		}
		switch i % 20 {
		case 0:
			n.kind, n.pin = notifications.Followed, 0
			n.actor = firstActor + 97*user + uint32(i/20*10+1) // a follow needs an actor of its own
		case 1, 2, 3, 4:
			n.kind, n.repin = notifications.Repinned, user*notificationsPerUser+uint32(i)
		}
		list[i] = n
	}
	return list
}

// The users do not see all that they received: some pins and re-pins were deleted, and users mute
// or block some actors.

func isDeletedPin(pin uint32) bool     { return pin%10 == 9 }
func isDeletedRepin(repin uint32) bool { return repin%100 == 1 }
func isMuted(actor uint32) bool        { return actor%50 == 21 }
func isBlocked(actor uint32) bool      { return actor%50 == 17 }

// isVisible reports whether the recipient sees the notification.
func (n *notification) isVisible() bool {
	switch {
	case isMuted(n.actor), isBlocked(n.actor):
		return false
	case n.kind == notifications.Followed:
		return true
	case n.kind == notifications.Repinned && isDeletedRepin(n.repin):
		return false
	default:
		return !isDeletedPin(n.pin)
	}
}

// readMarkers returns up to when a user of the class has read all groups, and the newest group,
// which the user has read as well.
func (c *notifiedClass) readMarkers(user uint32) (read events.Micros, group notificationGroup) {
	list := c.notificationsOf(user)
	return list[notificationsPerUser/2].at, groupNotifications(visibleNotifications(list))[0]
}

// expectedGroups returns all groups of a user of the class, newest first.
func (c *notifiedClass) expectedGroups(user uint32) []notificationGroup {
	read, readGroup := c.readMarkers(user)
	groups := groupNotifications(visibleNotifications(c.notificationsOf(user)))
	for i := range groups {
		groups[i].Unread = groups[i].Newest > read && groups[i].ID != readGroup.ID
	}
	return groups
}

// visibleNotifications returns those of the notifications that the recipient sees.
func visibleNotifications(list []notification) []listedNotification {
	var visible []listedNotification
	for i := range list {
		if list[i].isVisible() {
			visible = append(visible, list[i].asListed())
		}
	}
	return visible
}

// encodeClasses makes the log of the classes: the users' pins, what the users received, and then
// the mutes, the blocks, the deletions and the markers. Every user has seen what is older than the
// first notification, which is nothing.
func encodeClasses(classes []notifiedClass) ([]encodedEnvelope, error) {
	var log []encodedEnvelope
	appendEnvelopes := func(at events.Micros, evs iter.Seq[*skeinv1.Event]) error {
		for chunk := range slices.Chunk(slices.Collect(evs), events.MaxEnvelopeEvents) {
			env, err := encodeEnvelope(at, chunk)
			if err != nil {
				return err
			}
			log = append(log, env)
		}
		return nil
	}

	before := monthStart(0) - day
	for i := range classes {
		if err := appendEnvelopes(before, classes[i].eventsBefore(before)); err != nil {
			return nil, err
		}
	}
	for i := range classes {
		c := &classes[i]
		received := make([][]notification, len(c.users))
		for u, user := range c.users {
			received[u] = c.notificationsOf(user)
		}
		for row := range notificationsPerUser {
			err := appendEnvelopes(received[0][row].at, func(yield func(*skeinv1.Event) bool) {
				for u := range received {
					if !yield(received[u][row].event()) {
						return
					}
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	after := monthStart(1)
	for i := range classes {
		if err := appendEnvelopes(after, classes[i].eventsAfter()); err != nil {
			return nil, err
		}
	}
	return log, nil
}

// eventsBefore returns the events before the notifications of the class: each user creates pins,
// and has seen everything so far.
func (c *notifiedClass) eventsBefore(now events.Micros) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for _, user := range c.users {
			for pin := range uint32(pinsPerRecipient) {
				if !yield(workload.PinCreated(workload.UserID(user), pinID(user*pinsPerRecipient+pin))) {
					return
				}
			}
			seen := &skeinv1.NotificationsSeen{UserId: workload.UserID(user), SeenTime: timestamppb.New(now.Time())}
			if !yield(&skeinv1.Event{Kind: &skeinv1.Event_NotificationsSeen{NotificationsSeen: seen}}) {
				return
			}
		}
	}
}

// eventsAfter returns the events after the notifications of the class. The deletions do not name
// the pin that was notified of, so it is up to the reads to leave out what they end.
func (c *notifiedClass) eventsAfter() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for _, user := range c.users {
			for _, ev := range c.eventsAfterFor(user) {
				if !yield(ev) {
					return
				}
			}
		}
	}
}

// eventsAfterFor returns the events of eventsAfter that are about one user.
func (c *notifiedClass) eventsAfterFor(user uint32) []*skeinv1.Event {
	var evs []*skeinv1.Event
	deletePin := func(pin *skeinv1.Pin) {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: pin}}})
	}

	for pin := range uint32(pinsPerRecipient) {
		if number := user*pinsPerRecipient + pin; isDeletedPin(number) {
			deletePin(pinMessage(user, number))
		}
	}
	id := workload.UserID(user)
	done := make(map[uint32]bool)
	for _, n := range c.notificationsOf(user) {
		if n.kind == notifications.Repinned && isDeletedRepin(n.repin) {
			deletePin(pinMessage(n.actor, n.repin))
		}
		if done[n.actor] {
			continue
		}
		done[n.actor] = true
		actor := workload.UserID(n.actor)
		if isMuted(n.actor) {
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: id, TargetUserId: actor}}})
		}
		if isBlocked(n.actor) {
			evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: id, TargetUserId: actor}}})
		}
	}

	read, group := c.readMarkers(user)
	for _, marker := range []*skeinv1.NotificationsRead{
		{UserId: id, ReadTime: timestamppb.New(read.Time())},
		{UserId: id, ReadTime: timestamppb.New(group.Newest.Time()), GroupId: group.ID},
	} {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_NotificationsRead{NotificationsRead: marker}})
	}
	return evs
}
