// Package histories makes up histories for property tests: few users and boards, many collisions, only well-formed
// events, with the sequences, slots and times that a log would have given them.
//
// A history is drawn as a list of steps, each a fact and how it got into the log, and assembled afterwards: so that
// when rapid shrinks a failure by leaving out steps, what remains is still a well-formed history.
package histories
