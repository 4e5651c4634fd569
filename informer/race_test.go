//go:build race

package informer

// raceEnabled makes the tests of memory small while the race detector makes them long.
const raceEnabled = true
