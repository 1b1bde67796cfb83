// Package measure has what every group of rows needs to measure: the options and the state of a run
// ([Bench]), contenders that are measured in turn, the report with its tables, calls that are made
// in a closed or an open loop, medians, and the memory and processor time of a process. In a closed
// loop each call is made after the answer to the one before; in an open loop calls are made at
// given moments.
//
//	measure.go     a run: options, rows, contenders
//	report.go      the report, as tables and as JSON; comparison.go: the table of two builds; stats.go: medians and figures
//	machine.go     the machine, and the programs of other projects
//	openloop.go    the two loops; pace_linux.go, pace_other.go: waiting for a moment
//	tree.go        the size of the files in a directory
//	memory.go, cpu_unix.go    memory and processor time of a process; stopwatch.go: both kinds of time
package measure
