// Package call has what a method of the API knows about its call: the lag of the answer ([Info]),
// the stream for the parts of an answer ([Stream]), when it may make a long page
// ([Info.ReserveLongPage]), whether its caller still waits ([CheckCanceled]), the size of pages,
// and how answers represent counts and times.
//
// Methods know nothing else about HTTP, callers or limits. Package gateway handles these before it
// calls a method.
package call
