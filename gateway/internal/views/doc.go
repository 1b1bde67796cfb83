// Package views has the stores of a process as methods of the API read them: each at one position that contains what the call demands.
//
//	at_least, page token ─▶ Demand ─▶ wait until the store contains it ─▶ one view ─▶ answer + its position
//
// A method answers all of a call from one view, which it closes. The position of the view goes into the answer and into the token of
// the next page, which demands it in turn (I9).
package views
