// Package views gives the methods of the API access to the stores of a process. Each method reads
// at one position, which contains everything that its call demands.
//
//	at_least, page token ─▶ Demand ─▶ wait until the store contains it ─▶ one view ─▶ answer + its position
//
// A method answers the whole call from one view, and closes the view. The position of the view goes
// into the answer and into the token of the next page, which in turn demands that position
// (invariant I9).
package views
