//go:build race

package leaderelection

// raceEnabled makes the searches that say nothing about races short while the race detector makes them long.
const raceEnabled = true
