package reconciletest

// versionsCorpus is about custom resources in two versions: doors, of which only the apiVersion changes, and gates,
// hatches and panes, which a webhook converts.
var versionsCorpus = []conversation{
	{"versions: create and read", []step{
		post("doors", "a", `"spec":{"width":70,"both":"x"}`), get("doors/a"), get("doors1/a"),
		post("doors1", "b", `"spec":{"size":7,"both":"y"}`), get("doors/b"), get("doors1/b"), get("doors"),
		get("doors1"),
		post("gates", "a", `"spec":{"width":70,"both":"x"}`), get("gates/a"), get("gates1/a"),
		post("gates1", "b", `"spec":{"size":7,"both":"y"}`), get("gates/b"), get("gates1/b"), get("gates"),
		get("gates1"), get("gates1?limit=1"), get("gates?fieldSelector=metadata.name%3Da"),
		post("gates?dryRun=All", "c", `"spec":{"width":75}`), get("gates1/c")}},
	{"versions: what one does not allow", []step{
		post("gates", "a", `"spec":{"width":1000}`), post("gates1", "a", `"spec":{"size":100}`),
		post("gates1", "a", `"spec":{"width":1}`), post("gates1?fieldValidation=Strict", "b", `"spec":{"width":1}`),
		request("POST", "gates1", "application/json", bodyOf("gates", "c", ``))}},
	{"versions: writes", []step{
		post("gates1", "a", `"spec":{"size":7}`), merge("gates/a", `{"spec":{"width":80}}`),
		merge("gates1/a", `{"spec":{"size":8}}`), merge("gates/a", `{"spec":{"colour":"red"}}`), get("gates/a"),
		put("gates1/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"spec":{"size":9}`), get("gates/a"),
		put("gates/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"spec":{"width":90}`),
		merge("gates/a", `{"metadata":{"labels":{"l":"1"}}}`), get("gates1?labelSelector=l%3D1"),
		put("gates/a", `"metadata":{"resourceVersion":"{{a.rv1}}"},"spec":{"width":90}`),
		jsonPatch("gates1/a",
			`[{"op":"test","path":"/spec/size","value":9},{"op":"add","path":"/spec/both","value":"z"}]`),
		del("gates1/a", ``), get("gates/a"),
		post("doors1", "a", `"spec":{"size":7,"both":"x"}`), merge("doors/a", `{"spec":{"both":"y"}}`),
		get("doors1/a")}},
	{"versions: apply", []step{
		apply("gates/a?fieldManager=one", `"spec":{"width":70}`), apply("gates1/a?fieldManager=two",
			`"spec":{"size":8}`),
		apply("gates1/a?fieldManager=two&force=true", `"spec":{"size":8}`), get("gates/a"),
		apply("gates/a?fieldManager=one", `"spec":{"width":80}`), apply("gates1/a?fieldManager=two", `"spec":{}`),
		get("gates1/a"),
		apply("doors/a?fieldManager=one", `"spec":{"both":"x"}`), apply("doors1/a?fieldManager=one",
			`"spec":{"both":"y"}`),
		apply("doors1/a?fieldManager=two", `"spec":{"both":"z"}`), get("doors/a")}},
	{"versions: status and scale", []step{
		post("gates1", "a", `"spec":{"size":7},"status":{"open":true}`),
		merge("gates/a/status", `{"status":{"open":true},"spec":{"width":1}}`),
		merge("gates1/a/status", `{"status":{"open":false}}`), get("gates/a/status"), get("gates/a/scale"),
		get("gates1/a/scale"), merge("gates/a/scale", `{"spec":{"replicas":90}}`), get("gates1/a")}},
	{"versions: watch", []step{
		post("gates1", "a", `"spec":{"size":7}`), watching("w", "gates?resourceVersion={{a.rv}}"),
		watching("v", "gates1?resourceVersion={{a.rv}}"), merge("gates1/a", `{"spec":{"size":8}}`),
		post("gates", "b", `"spec":{"width":10}`), del("gates/a", ``), events("w", 3), events("v", 3),
		watching("s", "gates?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
		events("s", 2)}},
	// The answers about a definition differ in who manages which of its fields.
	{"versions: watches of a definition that changes", []step{
		post("panes1", "a", `"spec":{"size":7}`), watching("w", "panes?resourceVersion={{a.rv}}"),
		watching("v", "panes1?resourceVersion={{a.rv}}"), watching("g", "gates"),
		raw("PATCH", "crds/panes.corpus.example.com", "application/merge-patch+json", "application/json",
			`{"metadata":{"labels":{"l":"1"}}}`), merge("panes1/a", `{"spec":{"size":8}}`), events("w", 1),
		events("v", 1),
		raw("PATCH", "crds/panes.corpus.example.com", "application/merge-patch+json", "application/json",
			`{"spec":{"conversion":{"webhook":{"conversionReviewVersions":["v1","v1beta1"]}}}}`), ends("w"), ends("v"),
		merge("panes1/a", `{"spec":{"size":9}}`), get("panes/a"), post("gates", "b", `"spec":{"width":70}`),
		events("g", 1)}},
	{"versions: finalizers", []step{
		post("gates", "a", `"metadata":{"finalizers":["example.com/f"]},"spec":{"width":70}`), del("gates1/a", ``),
		get("gates/a"), merge("gates1/a", `{"metadata":{"finalizers":null}}`), get("gates/a")}},
	{"versions: conversions that fail", []step{
		post("hatches1", "a", `"metadata":{"annotations":{"fail":"name"}},"spec":{"size":7}`), get("hatches1/a"),
		get("hatches/a"), merge("hatches/a", `{"spec":{"width":80}}`), post("hatches", "b",
			`"metadata":{"annotations":{"fail":"none"}},"spec":{"width":70}`), get("hatches1/b"), get("hatches"),
		get("hatches1"),
		post("hatches1", "c", `"metadata":{"annotations":{"fail":"message"}}`), get("hatches/c"), del("hatches1/a", ``),
		del("hatches1/c", ``)}},
}
