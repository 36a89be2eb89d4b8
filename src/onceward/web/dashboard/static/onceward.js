// What a browser adds to pages that work without it: times that stay true, keys, copying, live update.

import { listen } from "./live.js";
import { keys } from "./keys.js";
import { times } from "./times.js";
import { wire } from "./wire.js";

wire();
keys();
times();
listen();
