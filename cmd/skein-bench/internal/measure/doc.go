// Package measure has what every group of rows measures with: the options and the run ([Bench]), contenders that are measured in turn,
// the report with its table, times of calls in an open and a closed loop, medians, memory and processor time, the machine.
//
//	measure.go     a run: options, rows, contenders
//	report.go      the report, as a table and as JSON; comparison.go: the table of two builds; stats.go: medians and figures
//	machine.go     the machine, and the programs of others
//	openloop.go    calls at given moments; pace_linux.go, pace_other.go: waiting for them
//	memory.go, cpu_unix.go, cpu_other.go    memory and processor time of a process
package measure
