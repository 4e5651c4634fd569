//go:build race

package sharding

// raceEnabled makes the searches shorter: they have one goroutine.
const raceEnabled = true
