package archive

import "github.com/skein-feed/skein/events"

// Class is a group of event kinds. The archive stores each class in files of its own, so that a
// fold that needs no activity can skip the files that hold it.
type Class uint8

// The classes.
const (
	// Facts holds every kind that is not of class Activity, all rejects, and envelopes without
	// events.
	Facts Class = iota
	// Activity holds plays, reactions and the other kinds of [ActivityKinds]. A fold that needs
	// none of them does not open these files.
	Activity
)

const numClasses = 2

// ActivityKinds are the kinds of class [Activity].
//
//nolint:gochecknoglobals // computed once from the kinds, and immutable from then on
var ActivityKinds = events.KindsAbout(events.TopicSeen, events.TopicItems, events.TopicMarkers, events.TopicNotificationMarkers)

var classNames = [numClasses]string{Facts: "facts", Activity: "activity"}

// String returns the name that the files of the class begin with.
func (c Class) String() string { return classNames[c] }

// ClassOf returns the class of a kind.
func ClassOf(k events.Kind) Class {
	if ActivityKinds.Has(k) {
		return Activity
	}
	return Facts
}

// parseClass returns the class with a name, and false if there is none.
func parseClass(name string) (Class, bool) {
	for c, n := range classNames {
		if n == name {
			return Class(c), true
		}
	}
	return 0, false
}

// record is the part of an envelope that is stored in the files of one class.
type record struct {
	seq      uint64
	lastTime events.Micros // the last log time that was assigned up to the end of the envelope
	bytes    int           // size of the message in the log
	repeats  int           // number of events that were dropped as repeats
	events   []events.Event
	rejects  []events.Reject
}

// splitByClass splits an envelope into one record per class. The record of class Activity is nil if
// the envelope has no event of that class. The record of class Facts is nil if the envelope has
// only activity, and neither repeats nor rejects.
//
// Both records have the sequence, last time and size of the envelope, so that a reader of one class
// returns the same cursor as a reader of both. Repeats and rejects are stored once, in Facts.
func splitByClass(env *events.Envelope) (parts [numClasses]*record) {
	var counts [numClasses]int
	for i := range env.Events {
		counts[ClassOf(env.Events[i].Kind)]++
	}

	add := func(c Class) *record {
		parts[c] = &record{seq: env.Cursor.Seq, lastTime: env.Cursor.LastTime, bytes: env.Bytes}
		return parts[c]
	}

	if counts[Activity] > 0 {
		add(Activity)
	}
	// The record of the facts also has what belongs to no event. An envelope without events is
	// archived too, because the cursors of readers count it.
	isEmpty := counts[Facts] == 0 && counts[Activity] == 0
	if counts[Facts] > 0 || isEmpty || env.Repeats > 0 || len(env.Rejects) > 0 {
		r := add(Facts)
		r.repeats = env.Repeats
		r.rejects = env.Rejects
	}

	for c, n := range counts {
		switch {
		case n == len(env.Events) && n > 0: // all events are of this class: share the slice
			parts[c].events = env.Events
		case n > 0:
			parts[c].events = make([]events.Event, 0, n)
			for i := range env.Events {
				if ClassOf(env.Events[i].Kind) == Class(c) {
					parts[c].events = append(parts[c].events, env.Events[i])
				}
			}
		}
	}
	return parts
}
