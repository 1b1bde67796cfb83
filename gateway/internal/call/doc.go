// Package call is what a method of the API knows of its call: how far behind the log its answer is ([Info]), where the parts of an
// answer go ([Stream]), when a long page may be made ([Info.MakeLong]), whether its caller still waits ([Poll]), how long a page may
// be, and how answers carry counts and times.
//
// Methods know nothing else of HTTP, of callers or of limits: package gateway sees to these before a method is asked.
package call
