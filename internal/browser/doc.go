// Package browser tests the pages of reconcile/inspect and of reconcile/plan in Chromium, and takes the pictures of the
// former's README. It is a module of its own because of chromedp. "make browser" runs it; it needs a chromium in the
// PATH.
package browser
