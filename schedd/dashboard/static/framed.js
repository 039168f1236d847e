// Times of the framed page in the reader's zone; the page reloads itself every minute.

import { localise } from "./times.js";

localise(document);
