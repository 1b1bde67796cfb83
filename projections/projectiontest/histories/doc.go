// Package histories generates histories of events for property tests. The histories have few users
// and boards and therefore many collisions. They have only well-formed events, with the sequences,
// slots and times that a log would have given them.
//
// A history is generated in two phases. First it is drawn as a list of steps: each step is an
// event, and how the event got into the log. Then the steps are assembled into a log. When rapid
// shrinks a failing history, it leaves out steps, and the remaining steps still make a well-formed
// history.
package histories
