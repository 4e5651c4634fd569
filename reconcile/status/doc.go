// Package status is what a Manager and its Controllers of package reconcile say of themselves, as types, and why a key
// is not being reconciled, as text. Manager.Inspect, Controller.Inspect, Controller.InspectKeys, Controller.InspectKey
// and Controller.Stats return it, and Options.OnRun and Causes give parts of it to code of yours.
//
// What goes in is what the loop knows at one moment; what comes out is plain data and a copy: nothing in it changes
// after it has been handed out. So the package has no lock and no goroutine. It has no value of an object, only names,
// versions, paths of fields, and the kinds of errors; their texts, which may quote values, are left out unless
// ManagerOptions.ErrorTexts is set.
//
// In JSON the fields have the names of their tags. A field that is empty or zero is left out. Times are as in RFC 3339,
// and durations are numbers of nanoseconds. More fields may come.
//
// # Reading order
//
// What there is: manager.go, informer.go, controller.go, key.go, run.go, write.go, error.go. The text: why.go.
package status
