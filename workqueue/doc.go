// Package workqueue holds the keys that need attention and hands each of them to one worker at a time.
package workqueue
