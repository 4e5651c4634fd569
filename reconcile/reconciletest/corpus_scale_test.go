package reconciletest

import (
	"fmt"
	"strings"
)

// scaleCorpus is about the scale subresource.
var scaleCorpus = []conversation{
	{"scale of a ReplicaSet", []step{
		post("rs", "a", workload(0)), get("rs/a/scale"), putScale("rs/a", `"resourceVersion":"{{a.rv}}",`, 1),
		get("rs/a"), putScale("rs/a", ``, 0), get("rs/a/scale")}},
	{"scale of a Deployment", []step{post("deploy", "a", pausedWorkload),
		merge("deploy/a/scale", `{"spec":{"replicas":0}}`), get("deploy/a/scale")}},
	{"scale of a StatefulSet", []step{
		post("sts", "a", `"spec":{"serviceName":"s",`+specOf(0)[1:]), merge("sts/a/scale", `{"spec":{"replicas":0}}`),
		get("sts/a/scale")}},
	{"scale by a patch", []step{
		post("rs", "a", workload(0)), merge("rs/a/scale", `{"spec":{"replicas":1}}`),
		jsonPatch("rs/a/scale", `[{"op":"replace","path":"/spec/replicas","value":0}]`), get("rs/a")}},
	{"scale by an apply", []step{
		post("rs", "a", workload(0)),
		request("PATCH", "rs/a/scale?fieldManager=me", "application/apply-patch+yaml", scaleBody("a", ``, 1)),
		request("PATCH", "rs/a/scale?fieldManager=me&force=true", "application/apply-patch+yaml",
			scaleBody("a", ``, 1)), get("rs/a")}},
	{"scale at an older version", []step{
		post("rs", "a", workload(0)), merge("rs/a", `{"metadata":{"labels":{"x":"y"}}}`),
		putScale("rs/a", `"resourceVersion":"{{a.rv1}}",`, 1)}},
	{"scale of another UID", []step{post("rs", "a", workload(0)),
		putScale("rs/a", `"uid":"11111111-1111-4111-8111-111111111111",`, 1)}},
	{"scale below zero", []step{post("rs", "a", workload(0)), putScale("rs/a", ``, -1),
		merge("rs/a/scale", `{"spec":{"replicas":-1}}`)}},
	{"scale of what is not there", []step{get("rs/a/scale"), putScale("rs/a", ``, 1),
		merge("rs/a/scale", `{"spec":{"replicas":1}}`)}},
	{"scale that changes nothing", []step{post("rs", "a", workload(0)), putScale("rs/a", ``, 0), get("rs/a")}},
	{"scale as a dry run", []step{post("rs", "a", workload(0)),
		merge("rs/a/scale?dryRun=All", `{"spec":{"replicas":1}}`), get("rs/a")}},
	{"scale of what cannot be scaled", []step{
		post("cm", "a", ``), get("cm/a/scale"), post("plain", "a", `"spec":{"count":1}`), get("plain/a/scale"),
		post("gadgets", "a", `"spec":{"count":1}`), get("gadgets/a/scale")}},
	{"scale of a custom resource", []step{
		post("scaled", "a", `"spec":{"count":1}`), get("scaled/a/scale"),
		merge("scaled/a/status", `{"status":{"count":1,"selector":"a=b"}}`), get("scaled/a/scale"),
		merge("scaled/a/scale", `{"spec":{"replicas":3}}`), get("scaled/a"), putScale("scaled/a", ``, 4),
		get("scaled/a"), putScale("scaled/a", `"resourceVersion":"{{a.rv1}}",`, 5)}},
	{"scale of a custom resource without a number", []step{
		post("scaled", "a", `"spec":{}`), get("scaled/a/scale"), merge("scaled/a/scale", `{"spec":{"replicas":3}}`),
		get("scaled/a"), get("scaled/b/scale")}},
}

// putScale updates the scale subresource of an object; metadata is the inside of the Scale's.
func putScale(short, metadata string, replicas int) step {
	_, name, _ := strings.Cut(short, "/")
	return request("PUT", short+"/scale", "application/json", scaleBody(name, metadata, replicas))
}

func scaleBody(name, metadata string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{%s"name":%q},"spec":{"replicas":%d}}`,
		metadata, name, replicas)
}
