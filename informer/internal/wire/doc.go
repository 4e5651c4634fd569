// Package wire turns the bytes of a list or watch response into objects, while they arrive.
//
//	response body --split--> Batch of raw objects --decode--> Batch of Events --> the reflector
//	               reader.go                       decoder.go
//
// The caller makes one [Decoder] for a resource and calls [Decoder.Read] for each response. The [Reader] that it
// returns delivers batches of [Event] values; [Reader.End] says how the response ended.
//
// An object that cannot be decoded, is larger than 16 MB or is nested too deep is an Event with its metadata and an
// error. Only bytes that do not show where one object ends and the next begins end the response.
//
//	reader.go        Reader, Batch: the goroutines of one response
//	json.go          where one object ends and the next begins, in JSON
//	protobuf.go      the same in protobuf
//	decoder.go       Decoder, Event: the bytes of one object into the object
//	share.go         an object that is left out after its metadata: Decoder.Keep
//	depth.go         an object that is nested too deep
//	undecodable.go   an object that cannot be decoded: which field, and what its metadata is
//	answer.go        the answer that somebody else's client gets in place of one that has been read
//	limits.go        how much is too much, and the errors
//	intern           what objects have in common is in memory once; built with the tag purego, nothing is shared
package wire
